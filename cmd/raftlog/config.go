package main

// Who the peers are, and to change it: what zr-config is for ØMQ Raft.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

const aboutConfig = `Show who the peers are, or change it while the cluster works.

Peers are written tcp://host:port/id, or without tcp://; without /id the ID is host:port. To
delete one its ID is enough. The cluster is found by peers of the file, or by the arguments.

Start new peers before they are added, with the present peers in their configuration. When
the command has ended the change is complete: peers that were deleted take no part any more,
and can be stopped; their IDs are not used again.

`

type reconfiguring struct {
	caller
	add, remove, replace []string
	dry                  bool
	ident                string
	wait                 time.Duration
}

func newConfig() *cobra.Command {
	var r reconfiguring
	cmd := &cobra.Command{
		Use: "config [-c FILE] [HOST:PORT...]", Short: "Show and change who the peers are", Long: aboutConfig + exitHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			for name, peers := range map[string][]string{"add": r.add, "delete": r.remove, "replace": r.replace} {
				if cmd.Flags().Changed(name) && len(peers) == 0 {
					return usage("--%s has no peers", name) // of a script's empty variable
				}
			}
			return r.run(cmd.Context(), args, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	r.caller.register(flags, 5*time.Second, "how long to look for the cluster")
	flags.StringSliceVarP(&r.add, "add", "a", nil, "peers to add")
	flags.StringSliceVarP(&r.remove, "delete", "d", nil, "peers to delete")
	flags.StringSliceVarP(&r.replace, "replace", "r", nil, "all peers there are to be, instead of -a and -d")
	flags.BoolVarP(&r.dry, "dry-run", "n", false, "only show what would be; so does the command without a change")
	flags.StringVar(&r.ident, "ident", "", "request ID of the change, 32 hexadecimal digits: repeated with it, it is carried out once")
	flags.DurationVar(&r.wait, "wait", 2*time.Minute, "how long to wait for the change; new peers have to catch up first")
	return cmd
}

func (r *reconfiguring) run(ctx context.Context, seeds []string, out io.Writer) error {
	id, err := requestIDOf(r.ident)
	if err != nil {
		return err
	}
	if len(r.replace) > 0 && len(r.add)+len(r.remove) > 0 {
		return usage("--replace says who all the peers are: it goes with neither --add nor --delete")
	}
	add, err := parsePeers(append(slices.Clone(r.add), r.replace...))
	if err != nil {
		return err
	}
	cl, _, err := r.client(seeds)
	if err != nil {
		return err
	}
	defer cl.Close()
	now, err := r.show(ctx, cl, out)
	if err != nil {
		return err
	}
	voters, already := add, error(nil)
	if len(r.replace) == 0 {
		if voters, err = planned(now.Voters, add, r.remove); err != nil {
			if r.ident == "" || r.dry || !inPlace(now.Voters, add, r.remove) {
				return err
			}
			voters, already = now.Voters, err // unless that was done under the ID
		}
	}
	if len(r.add)+len(r.remove)+len(r.replace) == 0 {
		return nil
	}
	fmt.Fprintln(out, "new peers:")
	printPeers(out, voters, raftlog.Peer{})
	if r.dry {
		fmt.Fprintln(out, "nothing was changed (--dry-run)")
		return nil
	}
	fmt.Fprintln(out, "request ID:", id)
	ctx, cancel := context.WithTimeoutCause(ctx, r.wait, fmt.Errorf("the change is not complete within %v (--wait): are the new peers running, and a majority of the old ones?", r.wait))
	defer cancel()
	index, err := cl.ChangePeers(ctx, id, voters)
	switch {
	case errors.Is(err, raftlog.ErrUnknownOutcome):
		return failure(exitUnknown, "%w; repeat it with --ident %v", err, id)
	case errors.Is(err, raftlog.ErrChanging):
		return failure(exitFailed, "%w: try again when that is complete; a change whose new peers do not come is given up after 20 election timeouts", err)
	case isInvalid(err) && already != nil:
		return already
	case isInvalid(err):
		return usage("%w", err)
	case err != nil:
		return err
	}
	fmt.Fprintln(out, "complete at entry", index)
	return nil
}

// show prints who the peers are, and returns it.
func (r *reconfiguring) show(ctx context.Context, cl *client.Client, out io.Writer) (client.Membership, error) {
	ctx, cancel := r.within(ctx)
	defer cancel()
	now, err := cl.Membership(ctx)
	if err != nil {
		return now, err
	}
	leader := leaderOf(cl.Infos(ctx))
	if len(now.Outgoing) > 0 {
		fmt.Fprintln(out, "a change is under way, from the peers:")
		printPeers(out, now.Outgoing, leader)
	}
	fmt.Fprintln(out, "current peers:")
	printPeers(out, now.Voters, leader)
	if len(now.Clients) > 0 {
		fmt.Fprintln(out, "peers without a vote:")
		printPeers(out, now.Clients, leader)
	}
	if leader == (raftlog.Peer{}) {
		fmt.Fprintln(out, "leader: none")
	} else {
		fmt.Fprintln(out, "leader:", peerURL(leader))
	}
	return now, nil
}

func printPeers(out io.Writer, peers []raftlog.Peer, leader raftlog.Peer) {
	for _, p := range peers {
		mark := ""
		if p == leader {
			mark = " (leader)"
		}
		fmt.Fprintf(out, "  %s%s\n", printable(peerURL(p)), mark)
	}
}

// leaderOf is who leads by the newest term that somebody knows.
func leaderOf(infos []client.PeerInfo) raftlog.Peer {
	answered := slices.DeleteFunc(slices.Clone(infos), func(i client.PeerInfo) bool {
		return i.Err != nil || i.Info.Leader == (raftlog.Peer{})
	})
	if len(answered) == 0 {
		return raftlog.Peer{}
	}
	return slices.MaxFunc(answered, func(a, b client.PeerInfo) int { return cmp.Compare(a.Info.Term, b.Info.Term) }).Info.Leader
}

// planned is who the voters are to be.
func planned(now, add []raftlog.Peer, remove []string) ([]raftlog.Peer, error) {
	voters := slices.Clone(now)
	for _, text := range remove {
		i, err := find(now, text)
		if err != nil {
			return nil, err
		}
		if voters = slices.DeleteFunc(voters, func(p raftlog.Peer) bool { return p == now[i] }); len(voters) == 0 {
			return nil, usage("nobody would be left")
		}
	}
	for _, p := range add {
		if i := slices.IndexFunc(now, func(q raftlog.Peer) bool { return q.ID == p.ID || q.Addr == p.Addr }); i >= 0 {
			return nil, failure(exitExists, "cannot add %s: %s is a peer already", peerURL(p), peerURL(now[i]))
		}
		voters = append(voters, p)
	}
	return voters, nil
}

// inPlace is whether the voters are already as a change wants them, as after the change.
func inPlace(now, add []raftlog.Peer, remove []string) bool {
	return !slices.ContainsFunc(add, func(p raftlog.Peer) bool { return !slices.Contains(now, p) }) &&
		!slices.ContainsFunc(remove, func(text string) bool { _, err := find(now, text); return err == nil })
}

// find is which of the peers a text means: by URL, by address, or by ID.
func find(peers []raftlog.Peer, text string) (int, error) {
	i := slices.IndexFunc(peers, func(p raftlog.Peer) bool { return p.ID == text })
	if i < 0 {
		if p, err := parsePeer(text); err == nil {
			i = slices.IndexFunc(peers, func(q raftlog.Peer) bool { return q == p || p.ID == p.Addr && q.Addr == p.Addr })
		}
	}
	if i < 0 {
		return 0, failure(exitMissing, "cannot delete %q: it is none of the peers", text)
	}
	return i, nil
}

// requestIDOf reads a request ID, or makes one.
func requestIDOf(text string) (requestid.ID, error) {
	if text == "" {
		return requestid.New(), nil
	}
	id, err := requestid.Parse(text)
	if err == nil && id.IsZero() {
		err = errors.New("the zero ID is none")
	}
	if err != nil {
		return id, usage("%w", err)
	}
	return id, nil
}

func isInvalid(err error) bool { return errors.Is(err, raftlog.ErrInvalid) }
