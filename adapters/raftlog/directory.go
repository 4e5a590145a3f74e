package raftlog

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// logDir is the name of the directory of the log, inside the directory of the peer.
const logDir = "log"

// identityErrorf returns an error that wraps ErrIdentity.
func identityErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", api.ErrIdentity, fmt.Sprintf(format, args...))
}

// claimDirectory locks the directory, returns an error unless the directory is new or belongs to this peer, and
// increments the start counter in the directory.
func (n *Node) claimDirectory() error {
	if err := n.fs.MkdirAll("."); err != nil {
		return fmt.Errorf("raftlog: %w", err)
	}
	lock, err := n.fs.Lock("lock")
	if errors.Is(err, disk.ErrLocked) {
		return fmt.Errorf("%w: %s: stop its process, or use another directory", api.ErrInUse, n.cfg.Dir)
	}
	if err != nil {
		return fmt.Errorf("raftlog: directory %s: %w", n.cfg.Dir, err)
	}
	n.lock = lock
	o, err := identity.ReadOwner(n.fs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if o, err = n.newOwner(); err != nil {
			return err
		}
	case errors.Is(err, identity.ErrDamaged):
		return fmt.Errorf("%w: directory %s: %w; remove peer %s from the cluster, and let it join with an empty directory under a new ID",
			api.ErrFault, n.cfg.Dir, err, n.cfg.ID)
	case errors.Is(err, identity.ErrFormat):
		return fmt.Errorf("%w: directory %s: %w", api.ErrInvalid, n.cfg.Dir, err)
	case err != nil:
		return fmt.Errorf("raftlog: directory %s: %w", n.cfg.Dir, err)
	case o.Cluster != n.cfg.Cluster || o.Peer != n.cfg.ID:
		return fmt.Errorf("%w: directory %s belongs to peer %s of cluster %s, according to its %s: use the directory of peer %s of cluster %s, or an empty one",
			api.ErrInvalid, n.cfg.Dir, o.Peer, o.Cluster, identity.OwnerFile, n.cfg.ID, n.cfg.Cluster)
	}
	o.Starts++
	if err := o.Write(n.fs); err != nil {
		return fmt.Errorf("raftlog: directory %s: %w", n.cfg.Dir, err)
	}
	n.owner, n.process = o, identity.New()
	return nil
}

// withRemedy adds to an error of Open what to do if a file of the directory cannot be opened or removed.
func (n *Node) withRemedy(err error) error {
	var failed *fs.PathError
	switch {
	case !errors.As(err, &failed):
	case errors.Is(failed, fs.ErrPermission):
		return fmt.Errorf("%w; let the user of this process read and write directory %s and all files in it", err, n.cfg.Dir)
	case errors.Is(failed, syscall.EISDIR), errors.Is(failed, syscall.ENOTEMPTY):
		return fmt.Errorf("%w; a file is expected in directory %s: move that directory away, and the file back to its place if it exists; "+
			"otherwise remove peer %s from the cluster, and let it join with an empty directory under a new ID", err, n.cfg.Dir, n.cfg.ID)
	}
	return err
}

// newOwner returns the owner of a new directory. The error is ErrIdentity if the directory has data.
func (n *Node) newOwner() (identity.Owner, error) {
	names, err := n.fs.List(".")
	if err != nil {
		return identity.Owner{}, fmt.Errorf("raftlog: directory %s: %w", n.cfg.Dir, err)
	}
	for _, name := range names {
		if name == snapshot.Name || name == logDir {
			return identity.Owner{}, identityErrorf("directory %s has %q and no %s, so that it is not the whole directory of peer %s: "+
				"remove the peer from the cluster, and let it join with an empty directory under a new ID", n.cfg.Dir, name, identity.OwnerFile, n.cfg.ID)
		}
	}
	return identity.Owner{Format: identity.Format, Cluster: n.cfg.Cluster, Peer: n.cfg.ID, Instance: identity.New()}, nil
}

// ownIdentity returns the identity that this process sends in handshakes.
func (n *Node) ownIdentity() link.Identity {
	i := n.cfg.linkIdentity()
	i.Claim = n.owner.Claim(n.process)
	return i
}

// initialSnapshot returns the newest snapshot. A new peer has no snapshot: initialSnapshot then founds the
// cluster with the other initial voters, or joins the cluster.
func (n *Node) initialSnapshot() (*snapshot.Reader, error) {
	if err := n.removeReceivedSnapshots(); err != nil {
		return nil, err
	}
	r, err := snapshot.Open(n.fs, ".")
	switch {
	case err == nil && r.Meta().Cluster != n.cfg.Cluster:
		return nil, errors.Join(fmt.Errorf("%w: directory %s: the file %s belongs to cluster %q, and the directory to cluster %q: put the right file back, "+
			"or remove peer %s from the cluster, and let it join with an empty directory under a new ID",
			api.ErrInvalid, n.cfg.Dir, snapshot.Name, r.Meta().Cluster, n.cfg.Cluster, n.cfg.ID), r.Close())
	case err == nil && n.owner.Founding != "":
		again, err := n.discardUnusedFounding(r.Meta().Index)
		if err == nil && !again {
			return r, nil
		}
		if err = errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
	case err == nil: // an earlier process received a snapshot, and stopped before it stored Founding: receive it again
		if err := r.Close(); err != nil {
			return nil, fmt.Errorf("raftlog: %w", err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", api.ErrFault, err)
	case n.owner.Complete:
		return nil, identityErrorf("the snapshot in directory %s was lost: remove peer %s from the cluster, and let it join with an empty directory under a new ID",
			n.cfg.Dir, n.cfg.ID)
	}
	if n.cfg.isFounder() {
		return n.foundCluster()
	}
	return n.joinCluster()
}

// removeReceivedSnapshots removes snapshots that an earlier process has received but not installed.
func (n *Node) removeReceivedSnapshots() error {
	names, err := n.fs.List(".")
	for _, name := range names {
		if err == nil && strings.HasPrefix(name, receivedPrefix) {
			err = n.fs.Remove(name)
		}
	}
	if err != nil {
		return fmt.Errorf("raftlog: directory %s: %w", n.cfg.Dir, err)
	}
	return nil
}

// checkLog returns an error if the log is missing or belongs to another directory.
func (n *Node) checkLog() error {
	wrong, err := n.owner.CheckLog(n.fs, logDir)
	if err != nil {
		return fmt.Errorf("raftlog: directory %s: %w", n.cfg.Dir, err)
	}
	if wrong != "" {
		return identityErrorf("%s, in directory %s, so that it is not known what this peer has voted and acknowledged: "+
			"remove peer %s from the cluster, and let it join with an empty directory under a new ID", wrong, n.cfg.Dir, n.cfg.ID)
	}
	return nil
}

// markDirectoryComplete records that the directory has a snapshot and a log.
func (n *Node) markDirectoryComplete() error {
	if n.owner.Complete {
		return nil
	}
	err := identity.MarkLog(n.fs, logDir, n.owner.Instance)
	if err == nil {
		n.owner.Complete = true
		err = n.owner.Write(n.fs)
	}
	if err != nil {
		return fmt.Errorf("raftlog: directory %s: %w", n.cfg.Dir, err)
	}
	return nil
}
