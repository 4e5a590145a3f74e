package main

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
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

const compactHelp = `Create a snapshot from the files of a peer, in a file from which the peer installs it (compact-file).
The command only reads the files of the peer, which may be running.

The snapshot contains the entries through the index of -i. Without -i the index is min(commit index,
prune index) of the peer of -p, by default the peer itself. Then peers that join later receive the
entries of all request IDs within the window. Such a snapshot contains few entries until the window
(7h by default) has passed since the first update; -i creates a newer snapshot. The target must not
exist, and is created completely or not at all. The files do not yet record that the newest entries
are committed; if -p names the peer itself, in addition to -i, the command queries the peer.

The command prints the files of the log that may be deleted when the peer has installed the
snapshot, the oldest first. With --wait it waits until then. Without --wait it prints the files to
standard error.

This command is for peers without a state machine, such as those of "raftlog serve". Programs with
a state machine call raftlog.CompactOffline.

`

// compactCommand contains the flags of the command compact, which corresponds to zr-log-compact of ØMQ Raft.
type compactCommand struct {
	clientFlags
	target, peer string
	index        uint64
	noPrune      bool
	wait         time.Duration
}

func newCompact() *cobra.Command {
	var c compactCommand
	cmd := &cobra.Command{
		Use: "compact [-c FILE] [-i INDEX | -p PEER]", Short: "Create a snapshot while the peer runs", Long: compactHelp + exitCodes(cmdline.Permanent, cmdline.Nothing), Args: maxArgs(0),
		Example: "  raftlog compact -c /etc/raftlog.yaml --peer-id a --wait 1m",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.createSnapshot(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&c.target, "target", "t", "", "snapshot file to create (default: compact-file of the file of -c)")
	c.clientFlags.register(cmd, 5*time.Second, "time limit for the peer of -p")
	c.seedHint = ", or give -p with an address, such as -p 10.0.0.1:8047"
	flags.Uint64VarP(&c.index, "index", "i", 0, "index of the last entry in the snapshot")
	flags.StringVarP(&c.peer, "peer", "p", "", "peer to query for the index: ID, or host:port")
	c.addFlags(cmd, "dir", "peer-id")
	flags.BoolVarP(&c.noPrune, "no-prune", "N", false, "do not print the files that may be deleted")
	flags.DurationVar(&c.wait, "wait", 0, "time to wait until the peer has installed the snapshot")
	return cmd
}

// createSnapshot creates the snapshot, waits until the peer has installed it if --wait is set, and prints the
// files that may be deleted.
func (c *compactCommand) createSnapshot(ctx context.Context, out, notes io.Writer) error {
	if c.wait < 0 {
		return newUsageError("--wait %v: must not be negative; an example is 1m", c.wait)
	}
	if err := c.load(); err != nil {
		return err
	}
	switch {
	case c.Dir == "":
		return newUsageError("the directory of the peer is missing: set dir in the file of -c, or -d, such as -d /var/lib/raftlog")
	case c.target == "" && c.compactFile == "":
		return newUsageError("the file to create is missing: set compact-file in the file of -c, or --target FILE")
	}
	dir, err := c.expandPath(c.Dir)
	if err != nil {
		return err
	}
	target, err := c.expandPath(cmp.Or(c.target, c.compactFile))
	if err != nil {
		return err
	}
	owner, err := readOwner(dir)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(target); err == nil { // reject an existing target before a peer is queried
		return newUsageError("--target %s exists: the file is a snapshot that the peer has not installed yet, or another file", target)
	}
	index, committed := c.index, uint64(0)
	if c.peer != "" || index == 0 {
		info, err := c.queryPeer(ctx, owner)
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
	if newest, err := offline.ReadSnapshot(filepath.Join(dir, offline.SnapshotName)); err != nil {
		return err
	} else if index <= newest.Index {
		return cmdline.Errorf(cmdline.Nothing, "nothing to compact: the snapshot contains the entries through %d, and entry %d is requested", newest.Index, index)
	}
	rejectedAt := modTime(target + ".refused")
	created, err := raftlog.CompactOffline(ctx, raftlog.OfflineConfig{Dir: dir, Index: index, Target: target, Committed: committed})
	if err != nil {
		return toUsageError(err)
	}
	fmt.Fprintf(notes, "%s contains the snapshot of entry %d, of %d bytes\n", target, created.Index, created.Size)
	if c.wait > 0 {
		if err := c.waitForInstallation(ctx, dir, target, rejectedAt, created); err != nil {
			return err
		}
		fmt.Fprintln(notes, "the peer has installed the snapshot")
	}
	if c.noPrune || len(created.Prunable) == 0 {
		return nil
	}
	if c.wait == 0 {
		fmt.Fprintln(notes, "when the peer has installed the snapshot, these files may be deleted:")
		out = notes
	}
	for _, name := range created.Prunable {
		fmt.Fprintln(out, filepath.Join(dir, name))
	}
	return nil
}

// queryPeer returns the status of the peer that -p names, or of the peer that owns the directory.
func (c *compactCommand) queryPeer(ctx context.Context, owner offline.Owner) (api.Info, error) {
	id, seeds := owner.Peer, []string(nil)
	if c.peer != "" {
		id = c.peer
	}
	if p, err := cmdline.ParsePeer(c.peer); err == nil {
		if id = p.ID; p.ID == p.Addr {
			id = ""
		}
		seeds = []string{c.peer}
	}
	if c.Cluster == "" || cmdline.IsFromFile(c.flags.Lookup("cluster")) {
		c.Cluster = owner.Cluster
	}
	cl, err := c.connect(seeds)
	if err != nil {
		return api.Info{}, err
	}
	defer cl.Close()
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	if id != "" && seeds == nil {
		i, err := cl.Info(ctx, id)
		return i, toUsageError(err)
	}
	infos := cl.Infos(ctx) // the result has one element, because the client knows one peer
	return infos[0].Info, infos[0].Err
}

// modTime returns the modification time of a file, or the zero time if the file does not exist.
func modTime(name string) time.Time {
	info, err := os.Stat(name)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// waitForInstallation waits until the peer has installed the snapshot, and the files of its log record that
// the log was truncated. rejectedAt is the modification time, before the snapshot was created, of the file of
// a rejected snapshot, or zero if there was none.
func (c *compactCommand) waitForInstallation(ctx context.Context, dir, target string, rejectedAt time.Time, created raftlog.Compaction) error {
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	limit := time.NewTimer(c.wait)
	defer limit.Stop()
	for {
		if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
			if modTime(target+".refused") != rejectedAt {
				return cmdline.Errorf(cmdline.Failed, "the peer has rejected the snapshot; its log contains the reason, and the file was renamed to %s.refused", target)
			}
			installed, err := offline.ReadSnapshot(filepath.Join(dir, offline.SnapshotName))
			if err != nil {
				return err
			}
			log, err := offline.ReadLog(dir)
			if err != nil {
				return err
			}
			if installed.Index >= created.Index && (len(created.Prunable) == 0 || log.Compacted >= created.Through) {
				return nil
			}
		}
		select {
		case <-poll.C:
		case <-limit.C:
			return cmdline.Errorf(cmdline.Failed, "the peer has not installed %s within %v (--wait): check that the peer is running, and that its compact-file is this file. The file remains", target, c.wait)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
