package main

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
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

const configHelp = `Show the peers of a running cluster, or change them.

A peer has the form tcp://host:port/id. tcp:// may be omitted; without /id the ID is host:port. For
--delete the ID is sufficient. The command contacts the peers in the file of -c, or those that are
given as arguments.

Start new peers before they are added, with the current peers in their configuration. The change is
complete when the command returns: peers that were deleted do not participate any more and can be
stopped. Their IDs must not be used again.

`

// configCommand contains the flags of the command config, which corresponds to zr-config of ØMQ Raft.
type configCommand struct {
	clientFlags
	add, remove, replace []string
	dryRun               bool
	requestID            string
	wait                 time.Duration
}

func newConfig() *cobra.Command {
	var c configCommand
	cmd := &cobra.Command{
		Use: "config [-c FILE] [HOST:PORT...]", Short: "Show and change the peers", Long: configHelp + exitCodes(cmdline.Permanent, cmdline.Missing, cmdline.Exists, cmdline.Unknown),
		Example: "  raftlog config -c /etc/raftlog.yaml\n  raftlog config -c /etc/raftlog.yaml --add " + cmdline.ExamplePeer + " --delete b",
		RunE: func(cmd *cobra.Command, args []string) error {
			for name, peers := range map[string][]string{"add": c.add, "delete": c.remove, "replace": c.replace} {
				if cmd.Flags().Changed(name) && len(peers) == 0 {
					return newUsageError("--%s is empty: give peers, such as --%s %s", name, name, cmdline.ExamplePeer) // for example because a variable of a script is empty
				}
			}
			return c.changePeers(cmd.Context(), args, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	c.clientFlags.register(cmd, 5*time.Second, "time limit for contacting the cluster")
	flags.StringSliceVarP(&c.add, "add", "a", nil, "peers to add")
	flags.StringSliceVarP(&c.remove, "delete", "d", nil, "peers to delete")
	flags.StringSliceVarP(&c.replace, "replace", "r", nil, "all peers after the change, instead of --add and --delete")
	flags.BoolVarP(&c.dryRun, "dry-run", "n", false, "only show the result of the change")
	flags.StringVar(&c.requestID, "request-id", "", "request ID of the change, 32 hexadecimal digits; a change that is repeated with the same ID is applied once")
	flags.DurationVar(&c.wait, "wait", 2*time.Minute, "time limit for the change; new peers must receive the log first")
	return cmd
}

// changePeers prints the peers, and changes them if the flags request a change.
func (c *configCommand) changePeers(ctx context.Context, seeds []string, out io.Writer) error {
	id, err := parseRequestID(c.requestID)
	if err != nil {
		return err
	}
	if c.wait <= 0 {
		return newUsageError("--wait %v: must be positive, such as 2m", c.wait)
	}
	if len(c.replace) > 0 && len(c.add)+len(c.remove) > 0 {
		return newUsageError("--replace lists all peers: omit --add and --delete")
	}
	add, err := parsePeers(append(slices.Clone(c.add), c.replace...))
	if err != nil {
		return err
	}
	cl, err := c.newClient(seeds)
	if err != nil {
		return err
	}
	defer cl.Close()
	current, err := c.printMembership(ctx, cl, out)
	if err != nil {
		return err
	}
	voters, planErr := add, error(nil)
	if len(c.replace) == 0 {
		if voters, err = planVoters(current.Voters, add, c.remove); err != nil {
			if c.requestID == "" || c.dryRun || !isInEffect(current.Voters, add, c.remove) {
				return err
			}
			// The change has perhaps been made already, by an earlier call with this request ID. Repeat the
			// request: if the cluster knows the ID, it returns the first result. Report planErr only if the
			// cluster rejects the request.
			voters, planErr = current.Voters, err
		}
	}
	if len(c.add)+len(c.remove)+len(c.replace) == 0 {
		return nil
	}
	fmt.Fprintln(out, "new peers:")
	printPeers(out, voters, api.Peer{})
	if c.dryRun {
		fmt.Fprintln(out, "nothing was changed (--dry-run)")
		return nil
	}
	fmt.Fprintln(out, "request ID:", id)
	ctx, cancel := context.WithTimeoutCause(ctx, c.wait, fmt.Errorf("the change is not complete within %v (--wait): are the new peers and a majority of the current peers running?", c.wait))
	defer cancel()
	index, err := cl.ChangePeers(ctx, id, voters)
	switch {
	case errors.Is(err, api.ErrUnknownOutcome):
		return cmdline.Errorf(cmdline.Unknown, "%w; repeat the change with --request-id %v", err, id)
	case errors.Is(err, api.ErrChanging):
		return cmdline.Errorf(cmdline.Failed, "%w: try again when the other change is complete; a change is cancelled if the new peers do not answer within 20 election timeouts", err)
	case isInvalid(err) && planErr != nil:
		return planErr
	case err != nil:
		return toUsageError(err)
	}
	fmt.Fprintln(out, "complete at entry", index)
	return nil
}

// printMembership queries the membership, prints it, and returns it.
func (c *configCommand) printMembership(ctx context.Context, cl *client.Client, out io.Writer) (api.Membership, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	m, err := cl.Membership(ctx)
	if err != nil {
		return m, err
	}
	leader := findLeader(cl.Infos(ctx))
	if len(m.Outgoing) > 0 {
		fmt.Fprintln(out, "a change is in progress, from the peers:")
		printPeers(out, m.Outgoing, leader)
	}
	fmt.Fprintln(out, "current peers:")
	printPeers(out, m.Voters, leader)
	if len(m.Learners) > 0 {
		fmt.Fprintln(out, "peers without a vote:")
		printPeers(out, m.Learners, leader)
	}
	if leader == (api.Peer{}) {
		fmt.Fprintln(out, "leader: none")
	} else {
		fmt.Fprintln(out, "leader:", cmdline.Printable(cmdline.PeerURL(leader)))
	}
	return m, nil
}

// printPeers prints one peer per line, and marks the leader.
func printPeers(out io.Writer, peers []api.Peer, leader api.Peer) {
	for _, p := range peers {
		mark := ""
		if p == leader {
			mark = " (leader)"
		}
		fmt.Fprintf(out, "  %s%s\n", cmdline.Printable(cmdline.PeerURL(p)), mark)
	}
}

// findLeader returns the leader of the newest term for which a peer knows the leader, or zero if no peer knows
// a leader.
func findLeader(infos []client.PeerInfo) api.Peer {
	known := slices.DeleteFunc(slices.Clone(infos), func(i client.PeerInfo) bool {
		return i.Err != nil || i.Info.Leader == (api.Peer{})
	})
	if len(known) == 0 {
		return api.Peer{}
	}
	return slices.MaxFunc(known, func(a, b client.PeerInfo) int { return cmp.Compare(a.Info.Term, b.Info.Term) }).Info.Leader
}

// planVoters returns the voters after a change, or an error if a peer to add exists already or a peer to remove
// does not exist.
func planVoters(current, add []api.Peer, remove []string) ([]api.Peer, error) {
	voters := slices.Clone(current)
	for _, text := range remove {
		i, err := findPeer(current, text)
		if err != nil {
			return nil, err
		}
		if voters = slices.DeleteFunc(voters, func(p api.Peer) bool { return p == current[i] }); len(voters) == 0 {
			return nil, newUsageError("--delete lists all peers: at least one peer must remain")
		}
	}
	for _, p := range add {
		if i := slices.IndexFunc(current, func(q api.Peer) bool { return q.ID == p.ID || q.Addr == p.Addr }); i >= 0 {
			return nil, cmdline.Errorf(cmdline.Exists, "cannot add %s: %s is a peer already", cmdline.PeerURL(p), cmdline.PeerURL(current[i]))
		}
		voters = append(voters, p)
	}
	return voters, nil
}

// isInEffect reports whether a change has been made already: all peers to add are voters, and no peer to remove
// is.
func isInEffect(current, add []api.Peer, remove []string) bool {
	return !slices.ContainsFunc(add, func(p api.Peer) bool { return !slices.Contains(current, p) }) &&
		!slices.ContainsFunc(remove, func(text string) bool { _, err := findPeer(current, text); return err == nil })
}

// findPeer returns the position of the peer with the given URL, address or ID.
func findPeer(peers []api.Peer, text string) (int, error) {
	i := slices.IndexFunc(peers, func(p api.Peer) bool { return p.ID == text })
	if i < 0 {
		if p, err := cmdline.ParsePeer(text); err == nil {
			i = slices.IndexFunc(peers, func(q api.Peer) bool { return q == p || p.ID == p.Addr && q.Addr == p.Addr })
		}
	}
	if i < 0 {
		return 0, cmdline.Errorf(cmdline.Missing, "cannot delete %q: no peer has this ID or address", text)
	}
	return i, nil
}

// parseRequestID parses a request ID. If the text is empty, it returns a new ID.
func parseRequestID(text string) (api.RequestID, error) {
	if text == "" {
		return api.NewRequestID(), nil
	}
	id, err := api.ParseRequestID(text)
	if err == nil && id.IsZero() {
		err = errors.New("must not be zero")
	}
	if err != nil {
		return id, newUsageError("--request-id %q: %w; create one with \"raftlog new-id\", an example is %v", text, err, api.NewRequestID())
	}
	return id, nil
}

func isInvalid(err error) bool { return errors.Is(err, api.ErrInvalid) }
