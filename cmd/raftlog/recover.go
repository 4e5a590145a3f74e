package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

const recoverHelp = `Make a stopped peer the only one of its cluster, after a majority of the voters was lost.

Use the command only if a majority of the voters cannot be started again. Updates that the lost
peers have confirmed, and that this peer does not have, are lost. Of the remaining peers choose
the peers with the highest term, and of these the peer with the highest last entry.

Without --accept-data-loss the command prints what would be lost, and changes nothing.

The cluster receives a new identity, so the other peers are rejected if they return. Then start the
peer as before, and add new peers with new IDs and empty directories ("raftlog config --add").

`

func newRecover() *cobra.Command {
	var f directoryFlags
	var addr string
	var accept bool
	cmd := &cobra.Command{
		Use: "recover [DIR]", Short: "Recover a cluster from one peer, after the loss of a majority", Long: recoverHelp + exitCodes(cmdline.Permanent, cmdline.Identity), Args: maxArgs(1),
		RunE: f.run(func(cmd *cobra.Command, dir string) error {
			if addr != "" {
				if err := checkAddress("--addr", addr, false); err != nil {
					return err
				}
			}
			r, err := raftlog.RecoverOffline(raftlog.RecoverConfig{Dir: dir, Addr: addr, DryRun: !accept})
			if err != nil {
				return toUsageError(err)
			}
			if _, err := io.WriteString(cmd.OutOrStdout(), recoveryText(r)); err != nil {
				return err
			}
			if !accept {
				return newUsageError("nothing was changed: repeat the command with --accept-data-loss")
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "done: start peer %s\n", cmdline.Printable(r.Peer.ID))
			return err
		}),
	}
	f.register(cmd)
	cmd.Flags().StringVar(&addr, "addr", "", "address at which others reach the peer, host:port (default: the previous address)")
	cmd.Flags().BoolVar(&accept, "accept-data-loss", false, "make the change")
	return cmd
}

// toUsageError converts an error that wraps api.ErrInvalid to an error of wrong usage, unless the error already
// has another exit code than Failed.
func toUsageError(err error) error {
	if isInvalid(err) && exitCode(err) == cmdline.Failed {
		return newUsageError("%w", err)
	}
	return err
}

// recoveryText describes the data that a recovery keeps and loses.
func recoveryText(r raftlog.Recovery) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %s will have one peer: %s at %s\n", cmdline.Printable(r.Cluster), cmdline.Printable(r.Peer.ID), cmdline.Printable(r.Peer.Addr))
	fmt.Fprintf(&b, "it has the entries through %d, of term %d\n", r.Last, r.Term)
	fmt.Fprintf(&b, "lost: every update after entry %d, including confirmed updates\n", r.Last)
	if r.Committed < r.Last {
		fmt.Fprintf(&b, "kept: entries %d to %d, which the files of this peer do not record as committed\n", r.Committed+1, r.Last)
	}
	fmt.Fprintf(&b, "fencing tokens above %d may be issued a second time\n", r.Last)
	if len(r.Removed) > 0 {
		fmt.Fprintf(&b, "removed permanently: %s\n", cmdline.Printable(strings.Join(r.Removed, ", ")))
	}
	return b.String()
}

const exportHelp = `Copy the newest snapshot of a peer to a file, for "raftlog restore". The command verifies all of it.

The peer may run. The file does not contain entries after the snapshot; "raftlog compact" creates a
newer snapshot. A snapshot contains the data of the state machine, the elections, the peers and the
request IDs, but not the entries. "raftlog serve" has no state machine, so the programs that follow
its log must store the updates.

`

func newExport() *cobra.Command {
	var f directoryFlags
	cmd := &cobra.Command{
		Use: "export [-d DIR] FILE", Short: "Copy the newest snapshot of a peer to a file", Long: exportHelp + exitCodes(cmdline.Permanent), Args: exactArgs(1, "the file to create"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := f.directory(nil)
			if err != nil {
				return err
			}
			e, err := raftlog.ExportOffline(dir, args[0])
			if err != nil {
				return toUsageError(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: cluster %s through entry %d, %d bytes\n", cmdline.Printable(args[0]), cmdline.Printable(e.Cluster), e.Index, e.Size)
			return err
		},
	}
	f.register(cmd)
	return cmd
}

const restoreHelp = `Create the directory of a peer that starts a new cluster of one peer, from a file of "raftlog
export".

The new cluster has the name, the elections, the request IDs and the data of the state machine that
the snapshot contains. Everything after the snapshot is lost. The new cluster has its own identity:
it rejects peers of the old cluster, and their IDs can be used again with empty directories.
Indexes, which are the fencing tokens of elections, continue after a gap. So no token is issued
twice, unless the old cluster had more entries after the snapshot than the gap.

Then start the peer with only itself in peers, and add others ("raftlog config --add").

`

func newRestore() *cobra.Command {
	var f directoryFlags
	var addr string
	var gap uint64
	cmd := &cobra.Command{
		Use: "restore -d DIR --peer-id ID --addr HOST:PORT FILE", Short: "Start a new cluster from an exported snapshot", Long: restoreHelp + exitCodes(cmdline.Permanent),
		Args: exactArgs(1, "the file of raftlog export"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := f.directory(nil)
			if err != nil {
				return err
			}
			switch {
			case f.ID == "":
				return newUsageError("the ID of the first peer is missing: give it by --peer-id, such as --peer-id a")
			case addr == "":
				return newUsageError("the address of peer %s is missing: give it by --addr, such as --addr 10.0.0.1:8047", f.ID)
			}
			if err := checkAddress("--addr", addr, false); err != nil {
				return err
			}
			e, err := raftlog.RestoreOffline(raftlog.RestoreConfig{
				Snapshot: args[0], Dir: dir, Peer: api.Peer{ID: f.ID, Addr: addr}, IndexGap: gap,
			})
			if err != nil {
				return toUsageError(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: peer %s of cluster %s, which continues after entry %d\n", cmdline.Printable(dir), cmdline.Printable(f.ID), cmdline.Printable(e.Cluster), e.Index)
			return err
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&addr, "addr", "", "address at which others reach the peer, host:port")
	cmd.Flags().Uint64Var(&gap, "index-gap", raftlog.DefaultIndexGap, "number of indexes to skip after the snapshot")
	return cmd
}

// exactArgs rejects another number of arguments than n. what describes the argument in the error if it is
// missing.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return newUsageError("%s is missing (see %s --help)", what, cmd.CommandPath())
		}
		return maxArgs(n)(cmd, args)
	}
}
