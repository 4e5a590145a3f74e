package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/elector/top"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

const (
	// listLimit is how long the backend may take to list candidates or elections. After that the screen shows that
	// the backend does not answer.
	listLimit = 3 * time.Second
	// searchIntervals is the number of polling intervals between two searches for elections.
	searchIntervals = 5
	// resignTimeout is how long a candidate may take to leave after a request to resign.
	resignTimeout = time.Minute
)

func newTop(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "top [election ...]", Short: "Show elections live in the terminal",
		Long: `Show the leader of each election, its fencing token, how long it has led, and the number of waiting
candidates; for the selected election all candidates in order; and recent changes. The command does
not join the elections. It shows a change of leaders immediately, and other changes within
--interval. If the backend does not answer, it shows the last known state and its age.

Without arguments it shows the election of --election, or with --under all elections with candidates
below a znode, including elections that are created later.

Keys: up and down select, tab switches to the queue of candidates, / filters, s changes the order,
r requests the leader or the selected candidate to hand over (after a confirmation), ? shows all
keys, q quits. Colours show the state; NO_COLOR turns them off. A terminal of at least 120 columns
shows the recent changes to the right of the elections.

Exit codes: 0 after q, TERM or INT; 1 the terminal has failed; 2 wrong usage, or the backend does
not support the command.`,
		Example: `  elector top --zookeeper-servers localhost /jobs/report /jobs/clean
  elector top --zookeeper-servers zk1,zk2,zk3 --under /jobs`,
	}
	parent := cmd.Flags().String("under", "", "show all elections below this znode (zookeeper only)")
	interval := cmd.Flags().Duration("interval", time.Second, "interval at which the candidates are listed, from 100ms to 1h")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && *parent == "" {
			args = []string{s.election}
		}
		if err := s.checkTop(args, *parent); err != nil {
			return err
		}
		switch {
		case len(args) > 0 && *parent != "":
			return usage("either elections or --under, not both")
		case *interval < 100*time.Millisecond, *interval > time.Hour:
			return usage("--interval %v: not from 100ms to 1h", *interval)
		case !term.IsTerminal(int(os.Stdout.Fd())) || os.Getenv("TERM") == "dumb":
			return usage("top needs a terminal; elector watch and elector status do not")
		}
		return s.runTop(cmd.Context(), args, *parent, *interval)
	}
	return cmd
}

// checkTop returns a usage error if the backend cannot show the given elections, or the elections below parent, or if
// another setting is invalid.
func (s *settings) checkTop(elections []string, parent string) error {
	err := s.requireSupport("top")
	if err == nil && slices.ContainsFunc(elections, func(name string) bool { return name != s.election }) {
		err = s.requireSupport(topOtherElection)
	}
	if err == nil && parent != "" {
		err = s.requireSupport(topUnder)
	}
	if err == nil && parent != "" && parent != "/" && zkdial.CheckPath(parent) != nil {
		err = usage("--under: %w", zkdial.CheckPath(parent))
	}
	if err != nil {
		return err
	}
	for _, name := range elections {
		other := *s
		other.election = name
		if err := other.check(); err != nil {
			return err
		}
	}
	return s.check()
}

// runTop shows the elections until the user quits or the process receives a signal.
func (s *settings) runTop(ctx context.Context, elections []string, parent string, interval time.Duration) error {
	s.log = slog.New(slog.DiscardHandler) // log nothing, because the screen shows errors
	b, err := s.openFor("top")
	if err != nil {
		return err
	}
	defer b.close()
	p := newPoller(b, parent, interval)
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return usage("top needs a terminal: %w", err)
	}
	defer screen.Fini()

	ctx, stop := cmdline.UntilSignal(ctx)
	defer p.tasks.Wait()
	defer stop()
	p.startPolling(ctx, elections)
	title := s.backend
	if s.backend == "zookeeper" {
		title += " " + s.zookeeper.servers
	}
	if parent != "" {
		title += " under " + parent
	}
	state := top.New(title, time.Now(), elections...)
	return ignoreAfterSignal(ctx, top.Run(ctx, screen, state, p.messages, func(r top.Request) { p.requestResignation(ctx, r) }))
}

// poller polls elections on the backend, and sends what it finds as messages to the screen.
type poller struct {
	backend  backend
	parent   string // the znode of the flag --under; "" without the flag
	interval time.Duration
	messages chan top.Message
	tasks    sync.WaitGroup
}

// newPoller returns a poller for elections. checkTop must have accepted the settings.
func newPoller(b backend, parent string, interval time.Duration) *poller {
	return &poller{backend: b, parent: parent, interval: interval, messages: make(chan top.Message)}
}

// startPolling starts goroutines that poll the elections, and search for elections below the znode of --under.
func (p *poller) startPolling(ctx context.Context, elections []string) {
	for i, name := range elections {
		if !slices.Contains(elections[:i], name) {
			p.tasks.Go(func() { p.pollElection(ctx, name) })
		}
	}
	if p.parent != "" {
		p.tasks.Go(func() { p.searchElections(ctx) })
	}
}

// send sends a message to the screen, unless ctx is done first.
func (p *poller) send(ctx context.Context, m top.Message) {
	select {
	case p.messages <- m:
	case <-ctx.Done():
	}
}

// requestResignation requests a candidate to resign, and sends the result to the screen.
func (p *poller) requestResignation(ctx context.Context, r top.Request) {
	p.tasks.Go(func() {
		limited, cancel := context.WithTimeoutCause(ctx, resignTimeout, fmt.Errorf("not within %v", resignTimeout))
		defer cancel()
		err := fmt.Errorf("%w of this backend", errors.ErrUnsupported)
		if request := p.backend.requestResignation; request != nil {
			err = request(limited, r.Election, candidateInfo{Name: r.Candidate.Name, ID: r.Candidate.ID})
		}
		p.send(ctx, top.Resigned{At: time.Now(), Request: r, Err: err})
	})
}

// searchElections searches for elections below the znode of --under at an interval, and polls the elections that it
// finds.
func (p *poller) searchElections(ctx context.Context) {
	polled := map[string]bool{}
	next := time.NewTicker(searchIntervals * p.interval)
	defer next.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, listLimit)
		names, complete, err := p.backend.find(limited, p.parent)
		cancel()
		m := top.Found{Elections: names}
		switch {
		case err != nil:
			m.Note = err.Error()
		case !complete:
			m.Note = fmt.Sprintf("more than %d znodes under %s: only some are searched", findLimit, p.parent)
		}
		p.send(ctx, m)
		for _, name := range names {
			if !polled[name] {
				polled[name] = true
				p.tasks.Go(func() { p.pollElection(ctx, name) })
			}
		}
		select {
		case <-next.C:
		case <-ctx.Done():
			return
		}
	}
}

var errNoAnswer = errors.New("the backend does not answer")

// pollElection lists the candidates of an election after each change of its leader, and at each interval.
func (p *poller) pollElection(ctx context.Context, name string) {
	var changes <-chan observation
	next := time.NewTicker(p.interval)
	defer next.Stop()
	for {
		limited, cancel := context.WithTimeoutCause(ctx, listLimit, errNoAnswer)
		candidates, err := p.backend.list(limited, name)
		cancel()
		if ctx.Err() != nil {
			return
		}
		switch {
		case errors.Is(err, leaderelection.ErrNoElection), errors.Is(err, leaderelection.ErrElectionOver):
			p.send(ctx, top.Missing{At: time.Now(), Election: name})
		case err != nil:
			p.send(ctx, top.Failed{At: time.Now(), Election: name, Err: err})
		default:
			p.send(ctx, top.Listed{At: time.Now(), Election: name, Candidates: topCandidates(candidates)})
			if changes == nil {
				changes, _ = p.backend.watch(ctx, name) // ignore the error, which list reports as well
			}
		}
		select {
		case o, open := <-changes:
			if !open || o.err != nil {
				changes = nil // the watch has ended; watch again after the next list
			}
		case <-next.C:
		case <-ctx.Done():
			return
		}
	}
}

func topCandidates(candidates []candidateInfo) []top.Candidate {
	queue := make([]top.Candidate, len(candidates))
	for i, c := range candidates {
		queue[i] = top.Candidate{Name: c.Name, ID: c.ID, Session: c.Session, Token: c.Token, Joined: c.Joined}
	}
	return queue
}
