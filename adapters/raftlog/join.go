package raftlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// owner says whose data a folder has.
type owner struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	Peer    string `json:"peer"`
}

const (
	format    = 1
	ownerFile = "peer.json"
)

// claim takes the folder for this process, and checks whose it is.
func (n *Node) claim() error {
	if err := n.fs.MkdirAll("."); err != nil {
		return fmt.Errorf("raftlog: %w", err)
	}
	lock, err := n.fs.Lock("lock")
	if errors.Is(err, disk.ErrLocked) {
		return fmt.Errorf("%w: folder %s is in use, by this process or another: %w", ErrInvalid, n.cfg.Dir, err)
	}
	if err != nil {
		return fmt.Errorf("raftlog: folder %s: %w", n.cfg.Dir, err)
	}
	n.lock = lock
	want := owner{format, n.cfg.Cluster, n.cfg.ID}
	f, err := n.fs.OpenRead(ownerFile)
	if errors.Is(err, fs.ErrNotExist) {
		return n.sign(want)
	}
	if err != nil {
		return fmt.Errorf("raftlog: %w", err)
	}
	defer f.Close()
	size, err := f.Size()
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.NewSectionReader(f, 0, min(size, 1<<16)))
	}
	var is owner
	if err == nil {
		err = json.Unmarshal(text, &is)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrFault, ownerFile, err)
	}
	if is != want {
		return fmt.Errorf("%w: folder %s is that of peer %s of cluster %s, format %d", ErrInvalid, n.cfg.Dir, is.Peer, is.Cluster, is.Format)
	}
	return nil
}

// sign writes whose the folder is; it is there as a whole or not at all.
func (n *Node) sign(o owner) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	temporary := fmt.Sprintf("%s.%x", ownerFile, rand.Uint64())
	f, err := n.fs.Create(temporary)
	if err != nil {
		return fmt.Errorf("raftlog: %w", err)
	}
	_, err = f.WriteAt(text, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		if err = n.fs.Rename(temporary, ownerFile); err == nil {
			err = n.fs.SyncDir(".")
		}
	}
	return err
}

// beginning is the newest snapshot. If there is none this is a new peer: one of those that
// begin the cluster, or one that joins it.
func (n *Node) beginning() (*snapshot.Reader, error) {
	if err := n.tidy(); err != nil {
		return nil, err
	}
	r, err := snapshot.Open(n.fs, ".")
	switch {
	case err == nil && r.Meta().Cluster != n.cfg.Cluster:
		return nil, errors.Join(fmt.Errorf("%w: the snapshot is of cluster %q", ErrInvalid, r.Meta().Cluster), r.Close())
	case err == nil:
		return r, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", ErrFault, err)
	case n.cfg.founds():
		return n.found()
	}
	return n.join()
}

// tidy removes snapshots that were being received when the process before ended.
func (n *Node) tidy() error {
	names, err := n.fs.List(".")
	for _, name := range names {
		if err == nil && strings.HasPrefix(name, received) {
			err = n.fs.Remove(name)
		}
	}
	if err != nil {
		return fmt.Errorf("raftlog: folder %s: %w", n.cfg.Dir, err)
	}
	return nil
}

// found begins the cluster: all of its first peers write the same snapshot, of entry 1.
func (n *Node) found() (*snapshot.Reader, error) {
	if names, err := n.fs.List("log"); err == nil && len(names) > 0 {
		return nil, fmt.Errorf("%w: the folder has a log and no snapshot: it is not a whole copy; remove this peer, and let it join under a new ID", ErrFault)
	}
	var voters []entry.Peer
	for _, p := range n.cfg.Peers {
		voters = append(voters, replica.With(n.cfg.Cluster, p))
	}
	tables := replica.New(voters, n.cfg.Window, n.cfg.ElectionTimeout)
	w, err := snapshot.Create(n.fs, ".", snapshot.Meta{
		Cluster: n.cfg.Cluster, Index: 1, Term: 1, Conf: tables.Members.ConfState(), Created: time.Now(),
	})
	if err != nil {
		return nil, fmt.Errorf("raftlog: %w", err)
	}
	if _, err := tables.View().WriteTo(w.Tables()); err != nil {
		w.Abort()
		return nil, err
	}
	if err := w.Commit(); err != nil {
		return nil, err
	}
	return snapshot.Open(n.fs, ".")
}

// join fetches a snapshot from whichever peer gives one.
func (n *Node) join() (*snapshot.Reader, error) {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.JoinTimeout)
	defer cancel()
	err := error(nil)
	said := map[Peer]string{}
	for {
		for _, p := range n.cfg.Peers {
			r, e := n.fetch(ctx, p)
			if e == nil {
				n.log.Info("the cluster's snapshot was fetched", "from", p.ID, "index", r.Meta().Index)
				return r, nil
			}
			if ctx.Err() == nil || err == nil {
				err = fmt.Errorf("raftlog: peer %s is none of Peers, and none of them has given it the cluster's snapshot within %v (JoinTimeout); the last of them, %v: %w",
					n.cfg.ID, n.cfg.JoinTimeout, p, e)
			}
			if text := e.Error(); ctx.Err() == nil && text != said[p] {
				said[p] = text
				n.log.Warn("no snapshot from a peer, to join the cluster; it is asked again", "from", p.ID, "addr", p.Addr, "err", e)
			}
		}
		pause := time.NewTimer(n.cfg.ElectionTimeout)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, err
		}
	}
}

func (n *Node) fetch(ctx context.Context, p Peer) (*snapshot.Reader, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := n.cfg.Dial(ctx, p.Addr)
	if err != nil {
		return nil, err
	}
	l, err := link.Dial(ctx, conn, n.cfg.identity(), p.ID, link.PurposeClient)
	if err != nil {
		return nil, err
	}
	caller := rpc.NewCaller(l)
	defer caller.Close()
	s, err := caller.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Data.Close()
	return snapshot.Install(n.fs, ".", s.Data)
}
