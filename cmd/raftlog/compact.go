package main

// To make a snapshot beside a running peer: what zr-log-compact is for ØMQ Raft.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/offline"
)

const aboutCompact = `Make a snapshot of a peer's files, and put it where the peer takes it over (compact-file).

The peer's files are only read, and it may run meanwhile. The snapshot is of the entry of -i;
or of min(commit index, prune index) of the peer of -p, by default the file's own: so peers
that join later get the entries of all IDs that are fresh. Until the window has passed since the
first update (7 h by default), that snapshot contains nearly nothing; -i makes a newer one. There
can be one target at a time: the next one is made after the peer has taken this one over. The target is there as a whole or
not at all, and must not exist. The files say of the newest entries only later that they are
committed: -p with the peer itself, beside -i, takes its word for it.

Files of the log that may be deleted are printed, the oldest first. They may be only when the
peer has taken the snapshot over: with --wait the command waits for that; without it they are
printed to standard error, as what may be deleted later.

This is for peers without a state machine, such as those of "raftlog serve". There is no flag
for a state machine: a program cannot load one. Those that have one call
raftlog.CompactOffline with it.

`

type compacting struct {
	caller
	target, dir, peer, id string
	index                 uint64
	noPrune               bool
	wait                  time.Duration
}

func newCompact() *cobra.Command {
	var c compacting
	cmd := &cobra.Command{
		Use: "compact [-c FILE] [-i INDEX | -p PEER]", Short: "Make a snapshot beside a running peer", Long: aboutCompact + exitHelp, Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&c.target, "target", "t", "", "the snapshot to make; default: compact-file")
	c.caller.register(flags, 5*time.Second, "how long to wait for the peer of -p")
	c.seeds = ", or give -p host:port"
	flags.Uint64VarP(&c.index, "index", "i", 0, "index of the last entry in it")
	flags.StringVarP(&c.peer, "peer", "p", "", "peer that says the index: ID, or host:port")
	flags.StringVarP(&c.dir, "dir", "d", "", "folder of the peer's data; default: dir")
	flags.StringVar(&c.id, "id", "", "ID of the peer, for {id} in the file; default: id")
	flags.BoolVarP(&c.noPrune, "no-prune", "N", false, "do not print files that may be deleted")
	flags.DurationVar(&c.wait, "wait", 0, "for how long to wait until the peer has taken it over")
	return cmd
}

func (c *compacting) run(ctx context.Context, out, notes io.Writer) error {
	s, err := c.load()
	if err != nil {
		return err
	}
	if c.id != "" {
		s.ID = c.id
	}
	dir, target := cmp.Or(c.dir, s.Dir), cmp.Or(c.target, s.CompactFile)
	switch err := cmp.Or(s.nameless(dir), s.nameless(target)); {
	case err != nil:
		return err
	case dir == "":
		return usage("whose files? Set dir in the file of -c, or -d")
	case target == "":
		return usage("which file is to be made? Set compact-file in the file of -c, or --target")
	}
	dir, target = s.placed(dir), s.placed(target)
	owner, err := offline.ReadOwner(dir)
	if err != nil {
		return usage("-d %s is not a peer's folder: %w", dir, err)
	}
	if _, err := os.Lstat(target); err == nil { // before a peer is asked
		return usage("--target %s exists: a snapshot that the peer has not taken over yet, or another file", target)
	}
	index, committed := c.index, uint64(0)
	if c.peer != "" || index == 0 {
		info, err := c.info(ctx, owner)
		if err != nil {
			return err
		}
		if index == 0 {
			index = min(info.LastApplied, info.CommitIndex, info.PruneIndex)
		}
		if info.Peer.ID == owner.Peer {
			committed = info.CommitIndex
		}
	}
	if old, err := offline.ReadSnapshot(filepath.Join(dir, offline.SnapshotName)); err != nil {
		return err
	} else if index <= old.Index {
		return failure(exitNothing, "there is nothing to compact: the snapshot is of entry %d, and that of entry %d is asked for", old.Index, index)
	}
	refused := modified(target + ".refused")
	made, err := raftlog.CompactOffline(ctx, raftlog.OfflineConfig{Dir: dir, Index: index, Target: target, Committed: committed})
	if err != nil {
		if isInvalid(err) {
			return usage("%w", err)
		}
		return err
	}
	fmt.Fprintf(notes, "%s has the snapshot of entry %d, of %d bytes\n", target, made.Index, made.Size)
	if c.wait > 0 {
		if err := c.await(ctx, dir, target, refused, made); err != nil {
			return err
		}
		fmt.Fprintln(notes, "the peer has taken it over")
	}
	if c.noPrune || len(made.Prunable) == 0 {
		return nil
	}
	if c.wait == 0 {
		fmt.Fprintln(notes, "when the peer has taken it over, these files may be deleted:")
		out = notes
	}
	for _, name := range made.Prunable {
		fmt.Fprintln(out, filepath.Join(dir, name))
	}
	return nil
}

// info asks the peer of -p, or the folder's own.
func (c *compacting) info(ctx context.Context, owner offline.Owner) (client.Info, error) {
	id, seeds := owner.Peer, []string(nil)
	if c.peer != "" {
		id = c.peer
	}
	if p, err := parsePeer(c.peer); err == nil {
		if id = p.ID; p.ID == p.Addr {
			id = ""
		}
		seeds = []string{c.peer}
	}
	if c.over.Cluster == "" {
		c.over.Cluster = owner.Cluster
	}
	cl, _, err := c.client(seeds)
	if err != nil {
		return client.Info{}, err
	}
	defer cl.Close()
	ctx, cancel := c.within(ctx)
	defer cancel()
	if id != "" && seeds == nil {
		i, err := cl.Info(ctx, id)
		if isInvalid(err) {
			return i, usage("%w", err)
		}
		return i, err
	}
	infos := cl.Infos(ctx) // of the one that is known
	return infos[0].Info, infos[0].Err
}

// modified is when a file was, zero if there is none.
func modified(name string) time.Time {
	info, err := os.Stat(name)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// await waits until the peer has taken the snapshot over, and its log knows.
func (c *compacting) await(ctx context.Context, dir, target string, refused time.Time, made raftlog.Compaction) error {
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	limit := time.NewTimer(c.wait)
	defer limit.Stop()
	for {
		if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
			if modified(target+".refused") != refused {
				return failure(exitFailed, "the peer has refused the snapshot, and its log says why; it is %s.refused now", target)
			}
			taken, err := offline.ReadSnapshot(filepath.Join(dir, offline.SnapshotName))
			if err != nil {
				return err
			}
			log, err := offline.ReadLog(dir)
			if err != nil {
				return err
			}
			if taken.Index >= made.Index && (len(made.Prunable) == 0 || log.Compacted >= made.Through) {
				return nil
			}
		}
		select {
		case <-poll.C:
		case <-limit.C:
			return failure(exitFailed, "the peer has not taken over %s within %v (--wait): does it run, with that as its compact-file? The file stays", target, c.wait)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
