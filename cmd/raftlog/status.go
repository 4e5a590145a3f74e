package main

// The command status.

import (
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
)

const aboutStatus = `Show the state of all peers as a table, until SIGINT or SIGTERM. On a terminal each table replaces
the previous one.

LEASE is the remaining time in which the leaders of elections at the peer may act. FIRST is the
index of the first entry in the log, PRUNE the index before the first entry whose request ID is
within the window, and IDS the number of request IDs that the peer remembers.

`

type watching struct {
	caller
	once, json bool
	interval   time.Duration
}

func newStatus() *cobra.Command {
	var w watching
	cmd := &cobra.Command{
		Use: "status [-c FILE] [HOST:PORT...]", Short: "Show the state of all peers", Long: aboutStatus + exitHelp,
		Example: "  raftlog status -c /etc/raftlog.yaml\n  raftlog status -c /etc/raftlog.yaml --once --json",
		RunE:    func(cmd *cobra.Command, args []string) error { return w.run(cmd.Context(), args, cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	w.caller.register(flags, 2*time.Second, "time limit for contacting the cluster")
	flags.BoolVarP(&w.once, "once", "1", false, "print one table; the exit code is 5 if there is no leader")
	flags.BoolVar(&w.json, "json", false, "print one JSON object per line instead of tables")
	flags.DurationVarP(&w.interval, "interval", "i", time.Second, "time between two tables, at least 100ms")
	return cmd
}

func (w *watching) run(ctx context.Context, seeds []string, out io.Writer) error {
	if w.interval < 100*time.Millisecond {
		return usage("--interval %v: it must be at least 100ms, such as 1s", w.interval)
	}
	cl, s, err := w.client(seeds)
	if err != nil {
		return err
	}
	defer cl.Close()
	redraw := false
	if f, ok := out.(*os.File); ok && !w.once && !w.json {
		redraw = term.IsTerminal(int(f.Fd()))
	}
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		r := w.ask(ctx, cl, s.Cluster)
		if ctx.Err() != nil {
			return nil // interrupted
		}
		if err := r.print(out, w.json, redraw); err != nil {
			return err
		}
		if w.once {
			if r.Leader == nil {
				return failure(exitNobody, "there is no leader%s", r.reason())
			}
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// report is the state of all peers.
type report struct {
	Cluster string       `json:"cluster"`
	Time    time.Time    `json:"time"`
	Leader  *api.Peer    `json:"leader"` // according to itself, with a lease
	Peers   []peerReport `json:"peers"`
}

type peerReport struct {
	Peer  api.Peer  `json:"peer"`
	Info  *api.Info `json:"info,omitempty"`
	Error string    `json:"error,omitempty"`
}

// ask queries the membership, and then all peers. If no peer answers it queries those of the file.
func (w *watching) ask(ctx context.Context, cl *client.Client, cluster string) report {
	limited, cancel := w.within(ctx)
	_, _ = cl.Membership(limited) // each peer's own answer says what is wrong
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

// reason is what the peers that do not answer say about it.
func (r report) reason() string {
	for _, p := range r.Peers {
		if p.Error != "" {
			return "; " + p.Error
		}
	}
	return ""
}

// A table is drawn over the one before; what is left of that is cleared, so that nothing
// flickers.
const (
	toTop      = "\x1b[H"
	clearRight = "\x1b[K"
	clearBelow = "\x1b[J"
)

func (r report) print(out io.Writer, asJSON, redraw bool) error {
	if asJSON {
		return printer{out: out}.json(r)
	}
	text := r.table()
	if redraw {
		text = toTop + strings.ReplaceAll(text, "\n", clearRight+"\n") + clearBelow
	}
	_, err := io.WriteString(out, text)
	return err
}

func (r report) table() string {
	var b strings.Builder
	leader := "no leader"
	if r.Leader != nil {
		leader = "leader " + printable(r.Leader.ID)
	}
	fmt.Fprintf(&b, "cluster %s, %s, %s\n", printable(r.Cluster), leader, r.Time.Local().Format("15:04:05.0"))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PEER\tADDR\tROLE\tTERM\tLEADER\tLEASE\tAPPLIED\tCOMMIT\tFIRST\tLAST\tPRUNE\tSNAPSHOT\tIDS\tNOTE")
	for _, p := range r.Peers {
		if p.Info == nil {
			fmt.Fprintf(t, "%s\t%s\t?\t\t\t\t\t\t\t\t\t\t\t%s\n", printable(p.Peer.ID), printable(p.Peer.Addr), printable(cause(p.Error)))
			continue
		}
		i := p.Info
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%v\t%d\t%d\t%d\t%d\t%d\t%d (%d B)\t%d\t%s\n",
			printable(p.Peer.ID), printable(p.Peer.Addr), printable(i.Role), i.Term, printable(i.Leader.ID), i.Lease.Round(time.Millisecond),
			i.LastApplied, i.CommitIndex, i.FirstIndex, i.LastIndex, i.PruneIndex, i.SnapshotIndex, i.SnapshotSize, i.RequestIDs, printable(i.Fault))
	}
	_ = t.Flush() // to memory
	return b.String()
}

// cause is the end of an error's text, which is what a table has room for.
func cause(text string) string {
	if _, after, ok := strings.Cut(text, ": refused: "); ok {
		return after // with what to do about it
	}
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return text
}
