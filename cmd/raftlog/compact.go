package main

// The command compact creates a snapshot while the peer runs, as zr-log-compact does for ØMQ Raft.

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

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/offline"
)

const aboutCompact = `Create a snapshot from the files of a peer, and put it where the peer takes it over (compact-file).
The files of the peer are only read, and it may run.

The snapshot contains the entries through the index of -i. Without -i the index is min(commit index,
prune index) of the peer of -p, by default the peer itself. So peers that join later receive the
entries of all request IDs within the window. Until the window has passed since the first update (7h
by default) that snapshot contains nearly nothing; -i creates a newer one. The target must not
exist, and is created completely or not at all. The files record only later that the newest entries
are committed; with -p and the peer itself, in addition to -i, the command asks the peer.

The command prints the files of the log that may be deleted when the peer has taken the snapshot
over, the oldest first. With --wait it waits for that. Without --wait it prints them to standard
error.

This command is for peers without a state machine, such as those of "raftlog serve". Programs with
a state machine call raftlog.CompactOffline.

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
		Use: "compact [-c FILE] [-i INDEX | -p PEER]", Short: "Create a snapshot while the peer runs", Long: aboutCompact + exitHelp, Args: atMost(0),
		Example: "  raftlog compact -c /etc/raftlog.yaml --peer-id a --wait 1m",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&c.target, "target", "t", "", "snapshot file to create (default: compact-file of the file of -c)")
	c.caller.register(flags, 5*time.Second, "time limit for the peer of -p")
	c.seeds = ", or give -p with an address, such as -p 10.0.0.1:8047"
	flags.Uint64VarP(&c.index, "index", "i", 0, "index of the last entry in the snapshot")
	flags.StringVarP(&c.peer, "peer", "p", "", "peer to query for the index: ID, or host:port")
	flags.StringVarP(&c.dir, "dir", "d", "", "directory of the data of the peer (default: dir of the file of -c)")
	flags.StringVar(&c.id, "peer-id", "", "ID of the peer, for {id} in the file (default: peer-id of the file)")
	flags.BoolVarP(&c.noPrune, "no-prune", "N", false, "do not print the files that may be deleted")
	flags.DurationVar(&c.wait, "wait", 0, "time to wait until the peer has taken the snapshot over")
	return cmd
}

func (c *compacting) run(ctx context.Context, out, notes io.Writer) error {
	if c.wait < 0 {
		return usage("--wait %v: it must not be negative; an example is 1m", c.wait)
	}
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
		return usage("the directory of the peer is missing: set dir in the file of -c, or -d, such as -d /var/lib/raftlog")
	case target == "":
		return usage("the file to create is missing: set compact-file in the file of -c, or --target FILE")
	}
	dir, target = s.placed(dir), s.placed(target)
	owner, err := readOwner(dir)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(target); err == nil { // before a peer is asked
		return usage("--target %s exists: it is a snapshot that the peer has not taken over yet, or another file", target)
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
		return failure(exitNothing, "nothing to compact: the snapshot contains the entries through %d, and entry %d is requested", old.Index, index)
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
func (c *compacting) info(ctx context.Context, owner offline.Owner) (api.Info, error) {
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
		return api.Info{}, err
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
				return failure(exitFailed, "the peer has rejected the snapshot; its log contains the reason, and the file is %s.refused now", target)
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
			return failure(exitFailed, "the peer has not taken over %s within %v (--wait): check that it runs, with that file as its compact-file. The file remains", target, c.wait)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
