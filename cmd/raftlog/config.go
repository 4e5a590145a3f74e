package main

// The command config shows and changes the peers, as zr-config does for ØMQ Raft.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

const aboutConfig = `Show the peers of a running cluster, or change them.

A peer has the form tcp://host:port/id. tcp:// may be omitted; without /id the ID is host:port. For
--delete the ID is sufficient. The command contacts the peers in the file of -c, or those that are
given as arguments.

Start new peers before they are added, with the present peers in their configuration. The change is
complete when the command returns: peers that were deleted do not participate any more and can be
stopped. Their IDs must not be used again.

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
		Use: "config [-c FILE] [HOST:PORT...]", Short: "Show and change the peers", Long: aboutConfig + exitHelp,
		Example: "  raftlog config -c /etc/raftlog.yaml\n  raftlog config -c /etc/raftlog.yaml --add " + examplePeer + " --delete b",
		RunE: func(cmd *cobra.Command, args []string) error {
			for name, peers := range map[string][]string{"add": r.add, "delete": r.remove, "replace": r.replace} {
				if cmd.Flags().Changed(name) && len(peers) == 0 {
					return usage("--%s is empty: give peers, such as --%s %s", name, name, examplePeer) // a variable of a script is empty
				}
			}
			return r.run(cmd.Context(), args, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	r.caller.register(flags, 5*time.Second, "time limit for contacting the cluster")
	flags.StringSliceVarP(&r.add, "add", "a", nil, "peers to add")
	flags.StringSliceVarP(&r.remove, "delete", "d", nil, "peers to delete")
	flags.StringSliceVarP(&r.replace, "replace", "r", nil, "all peers after the change, instead of --add and --delete")
	flags.BoolVarP(&r.dry, "dry-run", "n", false, "only show the result of the change")
	flags.StringVar(&r.ident, "request-id", "", "request ID of the change, 32 hexadecimal digits; a change that is repeated with the same ID is applied once")
	flags.DurationVar(&r.wait, "wait", 2*time.Minute, "time limit for the change; new peers must receive the log first")
	return cmd
}

func (r *reconfiguring) run(ctx context.Context, seeds []string, out io.Writer) error {
	id, err := requestIDOf(r.ident)
	if err != nil {
		return err
	}
	if r.wait <= 0 {
		return usage("--wait %v: it must be positive, such as 2m", r.wait)
	}
	if len(r.replace) > 0 && len(r.add)+len(r.remove) > 0 {
		return usage("--replace lists all peers: it excludes --add and --delete")
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
	printPeers(out, voters, api.Peer{})
	if r.dry {
		fmt.Fprintln(out, "nothing was changed (--dry-run)")
		return nil
	}
	fmt.Fprintln(out, "request ID:", id)
	ctx, cancel := context.WithTimeoutCause(ctx, r.wait, fmt.Errorf("the change is not complete within %v (--wait): are the new peers running, and a majority of the old ones?", r.wait))
	defer cancel()
	index, err := cl.ChangePeers(ctx, id, voters)
	switch {
	case errors.Is(err, api.ErrUnknownOutcome):
		return failure(exitUnknown, "%w; repeat it with --request-id %v", err, id)
	case errors.Is(err, api.ErrChanging):
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

// show prints the membership, and returns it.
func (r *reconfiguring) show(ctx context.Context, cl *client.Client, out io.Writer) (api.Membership, error) {
	ctx, cancel := r.within(ctx)
	defer cancel()
	now, err := cl.Membership(ctx)
	if err != nil {
		return now, err
	}
	leader := leaderOf(cl.Infos(ctx))
	if len(now.Outgoing) > 0 {
		fmt.Fprintln(out, "a change is in progress, from the peers:")
		printPeers(out, now.Outgoing, leader)
	}
	fmt.Fprintln(out, "current peers:")
	printPeers(out, now.Voters, leader)
	if len(now.Learners) > 0 {
		fmt.Fprintln(out, "peers without a vote:")
		printPeers(out, now.Learners, leader)
	}
	if leader == (api.Peer{}) {
		fmt.Fprintln(out, "leader: none")
	} else {
		fmt.Fprintln(out, "leader:", peerURL(leader))
	}
	return now, nil
}

func printPeers(out io.Writer, peers []api.Peer, leader api.Peer) {
	for _, p := range peers {
		mark := ""
		if p == leader {
			mark = " (leader)"
		}
		fmt.Fprintf(out, "  %s%s\n", printable(peerURL(p)), mark)
	}
}

// leaderOf returns the leader of the newest term in the answers.
func leaderOf(infos []client.PeerInfo) api.Peer {
	answered := slices.DeleteFunc(slices.Clone(infos), func(i client.PeerInfo) bool {
		return i.Err != nil || i.Info.Leader == (api.Peer{})
	})
	if len(answered) == 0 {
		return api.Peer{}
	}
	return slices.MaxFunc(answered, func(a, b client.PeerInfo) int { return cmp.Compare(a.Info.Term, b.Info.Term) }).Info.Leader
}

// planned returns the voters after a change.
func planned(now, add []api.Peer, remove []string) ([]api.Peer, error) {
	voters := slices.Clone(now)
	for _, text := range remove {
		i, err := find(now, text)
		if err != nil {
			return nil, err
		}
		if voters = slices.DeleteFunc(voters, func(p api.Peer) bool { return p == now[i] }); len(voters) == 0 {
			return nil, usage("--delete lists all peers: at least one must remain")
		}
	}
	for _, p := range add {
		if i := slices.IndexFunc(now, func(q api.Peer) bool { return q.ID == p.ID || q.Addr == p.Addr }); i >= 0 {
			return nil, failure(exitExists, "cannot add %s: %s is a peer already", peerURL(p), peerURL(now[i]))
		}
		voters = append(voters, p)
	}
	return voters, nil
}

// inPlace reports whether the voters are already those after the change.
func inPlace(now, add []api.Peer, remove []string) bool {
	return !slices.ContainsFunc(add, func(p api.Peer) bool { return !slices.Contains(now, p) }) &&
		!slices.ContainsFunc(remove, func(text string) bool { _, err := find(now, text); return err == nil })
}

// find returns the index of the peer with the given URL, address or ID.
func find(peers []api.Peer, text string) (int, error) {
	i := slices.IndexFunc(peers, func(p api.Peer) bool { return p.ID == text })
	if i < 0 {
		if p, err := parsePeer(text); err == nil {
			i = slices.IndexFunc(peers, func(q api.Peer) bool { return q == p || p.ID == p.Addr && q.Addr == p.Addr })
		}
	}
	if i < 0 {
		return 0, failure(exitMissing, "cannot delete %q: it is not one of the peers", text)
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
		err = errors.New("it must not be zero")
	}
	if err != nil {
		return id, usage("--request-id %q: %w; an example is %v", text, err, requestid.New())
	}
	return id, nil
}

func isInvalid(err error) bool { return errors.Is(err, api.ErrInvalid) }
