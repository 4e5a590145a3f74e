package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

const statusHelp = `Show the state of all peers as a table. On a terminal, or with --interval, the table is repeated
until SIGINT or SIGTERM. On a terminal each table replaces the previous one.

LEASE is the remaining time in which the leaders of elections at the peer may act. FIRST is the
index of the first entry in the log, PRUNE the index before the first entry whose request ID is
within the window, and IDS the number of request IDs that the peer remembers.

`

// statusCommand contains the flags of the command status.
type statusCommand struct {
	clientFlags
	once, json bool
	interval   time.Duration
	repeated   bool // --interval is set
}

func newStatus() *cobra.Command {
	var c statusCommand
	cmd := &cobra.Command{
		Use: "status [-c FILE] [HOST:PORT...]", Short: "Show the state of all peers", Long: statusHelp + exitCodes(cmdline.NoLeader),
		Example: "  raftlog status -c /etc/raftlog.yaml\n  raftlog status -c /etc/raftlog.yaml --once --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c.repeated = cmd.Flags().Changed("interval")
			return c.printReports(cmd.Context(), args, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	c.clientFlags.register(cmd, 2*time.Second, "time limit for contacting the cluster")
	flags.BoolVarP(&c.once, "once", "1", false, "print one table; the exit code is 5 if there is no leader, and 1 if no peer answers")
	flags.BoolVar(&c.json, "json", false, "print one JSON object per line instead of tables")
	flags.DurationVarP(&c.interval, "interval", "i", time.Second, "time between two tables, at least 100ms")
	return cmd
}

// printReports prints a report at each interval until ctx is done. It prints only one with --once, or if the
// output is not a terminal and --interval is not set.
func (c *statusCommand) printReports(ctx context.Context, seeds []string, out io.Writer) error {
	if c.interval < 100*time.Millisecond {
		return newUsageError("--interval %v: must be at least 100ms, such as 1s", c.interval)
	}
	cl, err := c.newClient(seeds)
	if err != nil {
		return err
	}
	defer cl.Close()
	f, isFile := out.(*os.File)
	terminal := isFile && term.IsTerminal(int(f.Fd()))
	once := c.once || !terminal && !c.repeated
	redraw := terminal && !once && !c.json
	tick := time.NewTicker(c.interval)
	defer tick.Stop()
	for {
		r := c.queryReport(ctx, cl, c.Cluster)
		if ctx.Err() != nil {
			return nil // ctx is done because of a signal, which is the normal end of the command
		}
		if err := r.print(out, c.json, redraw); err != nil {
			return err
		}
		if once {
			return r.check()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// report is the output of the command status: the state of all peers.
type report struct {
	Cluster string       `json:"cluster"`
	Time    time.Time    `json:"time"`
	Leader  *api.Peer    `json:"leader"` // the peer that reports that it is the leader and has a lease, or nil
	Peers   []peerReport `json:"peers"`
}

// peerReport is the state of a peer, or the error of querying the peer.
type peerReport struct {
	Peer  api.Peer  `json:"peer"`
	Info  *api.Info `json:"info,omitempty"`
	Error string    `json:"error,omitempty"`
}

// queryReport queries the membership, and then the status of all peers. If no peer returns the membership, it
// queries the peers that the client knew before.
func (c *statusCommand) queryReport(ctx context.Context, cl *client.Client, cluster string) report {
	limited, cancel := c.withTimeout(ctx)
	_, _ = cl.Membership(limited) // ignore the error, because the report contains the errors of the peers
	cancel()
	r := report{Cluster: cluster, Time: time.Now().UTC()}
	term := uint64(0)
	for _, i := range cl.Infos(ctx) {
		p := peerReport{Peer: i.Peer}
		if i.Err != nil {
			p.Error = i.Err.Error()
		} else {
			p.Info = &i.Info
			p.Peer = i.Info.Peer
			if i.Info.Role == "leader" && i.Info.Lease > 0 && i.Info.Term > term {
				r.Leader, term = &p.Info.Peer, i.Info.Term
			}
		}
		r.Peers = append(r.Peers, p)
	}
	return r
}

// check returns an error, with its exit code, unless a peer has answered that it is the leader.
func (r report) check() error {
	first, answered := "", false
	for _, p := range r.Peers {
		first = cmp.Or(first, p.Error)
		answered = answered || p.Info != nil
	}
	switch {
	case !answered:
		return cmdline.Errorf(cmdline.Failed, "no peer has answered: %s", cmp.Or(first, "no peer is known"))
	case r.Leader == nil && first != "":
		return cmdline.Errorf(cmdline.NoLeader, "no peer that has answered is the leader, and another peer has not answered: %s", first)
	case r.Leader == nil:
		return cmdline.Errorf(cmdline.NoLeader, "there is no leader")
	}
	return nil
}

// The control sequences for terminals. Each table is written over the previous one, whose remaining text is
// then cleared, so that the screen does not flicker.
const (
	cursorHome = "\x1b[H"
	clearRight = "\x1b[K"
	clearBelow = "\x1b[J"
)

func (r report) print(out io.Writer, asJSON, redraw bool) error {
	if asJSON {
		return entryPrinter{out: out}.printJSON(r)
	}
	text := r.formatTable()
	if redraw {
		text = cursorHome + strings.ReplaceAll(text, "\n", clearRight+"\n") + clearBelow
	}
	_, err := io.WriteString(out, text)
	return err
}

func (r report) formatTable() string {
	var b strings.Builder
	leader := "no leader"
	if r.Leader != nil {
		leader = "leader " + cmdline.Printable(r.Leader.ID)
	}
	fmt.Fprintf(&b, "cluster %s, %s, %s\n", cmdline.Printable(r.Cluster), leader, r.Time.Local().Format("15:04:05.0"))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PEER\tADDR\tROLE\tTERM\tLEADER\tLEASE\tAPPLIED\tCOMMIT\tFIRST\tLAST\tPRUNE\tSNAPSHOT\tIDS\tNOTE")
	for _, p := range r.Peers {
		if p.Info == nil {
			fmt.Fprintf(t, "%s\t%s\t?\t\t\t\t\t\t\t\t\t\t\t%s\n", cmdline.Printable(p.Peer.ID), cmdline.Printable(p.Peer.Addr), cmdline.Printable(shortCause(p.Error)))
			continue
		}
		i := p.Info
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%v\t%d\t%d\t%d\t%d\t%d\t%d (%d B)\t%d\t%s\n",
			cmdline.Printable(p.Peer.ID), cmdline.Printable(p.Peer.Addr), cmdline.Printable(i.Role), i.Term, cmdline.Printable(i.Leader.ID), i.Lease.Round(time.Millisecond),
			i.LastApplied, i.CommitIndex, i.FirstIndex, i.LastIndex, i.PruneIndex, i.SnapshotIndex, i.SnapshotSize, i.RequestIDs, cmdline.Printable(i.Fault))
	}
	_ = t.Flush() // cannot fail, because it writes to memory
	return b.String()
}

// shortCause returns the last part of the text of an error, which is short enough for a table.
func shortCause(text string) string {
	if _, after, ok := strings.Cut(text, ": refused: "); ok {
		return after // keep the whole text of a refusal, which includes the remedy
	}
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return text
}
