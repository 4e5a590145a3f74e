package main

// What is done after the loss of data.

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
)

const aboutRecover = `Make a stopped peer the only one of its cluster, after a majority of the voters was lost.

Use it only if a majority of the voters cannot be started again. Updates that were acknowledged
by the lost peers, and that this peer does not have, are lost. Choose, of the peers that are
left, the one with the highest term, and of these the one with the highest last entry.

Without --accept-data-loss the command prints what would be lost, and changes nothing.

The cluster gets a new identity: the other peers are refused if they come back. Start the peer
then, as before; add new peers under new IDs, with empty directories ("raftlog config --add").

`

func newRecover() *cobra.Command {
	var f folder
	var addr string
	var accept bool
	cmd := &cobra.Command{
		Use: "recover [DIR]", Short: "Recover a cluster from one peer, after the loss of a majority", Long: aboutRecover + exitHelp, Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := f.path(args)
			if err != nil {
				return err
			}
			r, err := raftlog.RecoverOffline(raftlog.RecoverConfig{Dir: dir, Addr: addr, DryRun: !accept})
			if err != nil {
				return invalidIsUsage(err)
			}
			if _, err := io.WriteString(cmd.OutOrStdout(), recoveryText(r)); err != nil {
				return err
			}
			if !accept {
				return usage("nothing was changed: repeat the command with --accept-data-loss")
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "done: start peer %s\n", printable(r.Peer.ID))
			return err
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&addr, "addr", "", "where others will reach the peer, host:port; default: as before")
	cmd.Flags().BoolVar(&accept, "accept-data-loss", false, "make the change")
	return cmd
}

func invalidIsUsage(err error) error {
	if isInvalid(err) {
		return usage("%w", err)
	}
	return err
}

// recoveryText says what is lost by a recovery.
func recoveryText(r raftlog.Recovery) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %s is to have one peer: %s at %s\n", printable(r.Cluster), printable(r.Peer.ID), printable(r.Peer.Addr))
	fmt.Fprintf(&b, "it has the entries through %d, of term %d\n", r.Last, r.Term)
	fmt.Fprintf(&b, "lost: every update behind entry %d, whether it was acknowledged or not\n", r.Last)
	if r.Committed < r.Last {
		fmt.Fprintf(&b, "kept: entries %d to %d, of which this peer's files do not say that they were acknowledged\n", r.Committed+1, r.Last)
	}
	fmt.Fprintf(&b, "fencing tokens above %d may be issued a second time\n", r.Last)
	if len(r.Removed) > 0 {
		fmt.Fprintf(&b, "removed for ever: %s\n", printable(strings.Join(r.Removed, ", ")))
	}
	return b.String()
}

const aboutExport = `Copy the newest snapshot of a peer to a file, for "raftlog restore". All of it is verified.

The peer may run meanwhile. Entries behind the snapshot are not in the file: "raftlog compact"
makes a newer snapshot. A snapshot has the state machine's data, the elections, the peers and the
request IDs. It does not have the entries themselves: with "raftlog serve", which has no state
machine, updates have to be kept by whoever follows the log.

`

func newExport() *cobra.Command {
	var f folder
	cmd := &cobra.Command{
		Use: "export [-d DIR] FILE", Short: "Copy a peer's newest snapshot to a file", Long: aboutExport + exitHelp, Args: exactly(1, "the file to be made"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := f.path(nil)
			if err != nil {
				return err
			}
			e, err := raftlog.ExportOffline(dir, args[0])
			if err != nil {
				return invalidIsUsage(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: cluster %s through entry %d, %d bytes\n", printable(args[0]), printable(e.Cluster), e.Index, e.Size)
			return err
		},
	}
	f.register(cmd)
	return cmd
}

const aboutRestore = `Make the directory of a peer that begins a new cluster of one, from a file of "raftlog export".

The new cluster has the name, the elections, the request IDs and the state machine's data of the
old one as they were in the snapshot. Everything behind the snapshot is lost. The new cluster has
an identity of its own: peers of the old one are refused, and IDs of old peers can be used again
with empty directories. Indexes, which are the fencing tokens of elections, go on behind a gap, so
that no token is issued twice if the old cluster had fewer entries behind the snapshot.

Then start the peer, with itself as the only one in peers, and add others ("raftlog config --add").

`

func newRestore() *cobra.Command {
	var f folder
	var addr string
	var gap uint64
	cmd := &cobra.Command{
		Use: "restore -d DIR --id ID --addr HOST:PORT FILE", Short: "Begin a new cluster with an exported snapshot", Long: aboutRestore + exitHelp,
		Args: exactly(1, "the file of raftlog export"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := f.path(nil)
			if err != nil {
				return err
			}
			switch {
			case f.id == "":
				return usage("which peer is to begin the cluster? Give --id")
			case addr == "":
				return usage("where will others reach peer %s? Give --addr", f.id)
			}
			e, err := raftlog.RestoreOffline(raftlog.RestoreConfig{
				Snapshot: args[0], Dir: dir, Peer: raftlog.Peer{ID: f.id, Addr: addr}, IndexGap: gap,
			})
			if err != nil {
				return invalidIsUsage(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: peer %s of cluster %s, which goes on behind entry %d\n", printable(dir), printable(f.id), printable(e.Cluster), e.Index)
			return err
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&addr, "addr", "", "where others will reach the peer, host:port")
	cmd.Flags().Uint64Var(&gap, "index-gap", raftlog.DefaultIndexGap, "how many indexes are left out behind the snapshot")
	return cmd
}

// exactly wants n arguments.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return usage("%s is missing (see %s --help)", what, cmd.CommandPath())
		}
		return atMost(n)(cmd, args)
	}
}
