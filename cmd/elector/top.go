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

	"github.com/go-leaderelection/leaderelection/cmd/elector/top"
	"github.com/go-leaderelection/leaderelection/internal/zk/znode"
)

const (
	// answerLimit limits the time of one answer. After it the screen shows that there is none.
	answerLimit = 3 * time.Second
	// surveyEvery is the number of intervals between two searches for elections.
	surveyEvery = 5
	// resignTimeout limits the time in which a candidate must leave after a request.
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
shows the recent changes beside the elections.

Exit codes: 0 after q, TERM or INT; 1 the terminal has failed; 2 wrong usage, or the backend does
not support the command.`,
		Example: `  elector top --zookeeper-servers localhost /jobs/report /jobs/clean
  elector top --zookeeper-servers zk1,zk2,zk3 --under /jobs`,
	}
	under := cmd.Flags().String("under", "", "show all elections below this znode (zookeeper only)")
	interval := cmd.Flags().Duration("interval", time.Second, "interval at which the candidates are listed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && *under == "" {
			args = []string{s.election}
		}
		if err := s.topSupports(args, *under); err != nil {
			return err
		}
		switch {
		case len(args) > 0 && *under != "":
			return usage("either elections or --under, not both")
		case *interval < 100*time.Millisecond:
			return usage("--interval %v: less than 100ms", *interval)
		case !term.IsTerminal(int(os.Stdout.Fd())) || os.Getenv("TERM") == "dumb":
			return usage("top needs a terminal; elector watch and elector status do not")
		}
		return s.top(cmd.Context(), args, *under, *interval)
	}
	return cmd
}

// top shows elections until the user quits, or a signal.
func (s *settings) top(ctx context.Context, elections []string, under string, interval time.Duration) error {
	s.log = slog.New(slog.DiscardHandler) // what is wrong is on the screen
	b, err := s.openFor("top")
	if err != nil {
		return err
	}
	defer b.close()
	f := newFeed(b, under, interval)
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return usage("top needs a terminal: %w", err)
	}
	defer screen.Fini()

	ctx, stop := untilSignal(ctx)
	defer f.tasks.Wait()
	defer stop()
	f.start(ctx, elections)
	about := s.backend
	if s.backend == "zookeeper" {
		about += " " + s.zookeeper.servers
	}
	if under != "" {
		about += " under " + under
	}
	return endedBySignal(ctx, top.Run(ctx, screen, top.New(about, time.Now(), elections...), f.messages, func(r top.Request) { f.request(ctx, r) }))
}

// feed sends messages to the screen.
type feed struct {
	at       func(election string) backend
	find     func(ctx context.Context, under string) (elections []string, all bool, err error) // nil without --under
	under    string
	interval time.Duration
	messages chan top.Message
	tasks    sync.WaitGroup
}

// topSupports returns an error if the kind of backend cannot show these elections, or if a name or
// another setting is invalid.
func (s *settings) topSupports(elections []string, under string) error {
	err := s.supports("top")
	if err == nil && slices.ContainsFunc(elections, func(name string) bool { return name != s.election }) {
		err = s.supports(topOfOthers)
	}
	if err == nil && under != "" {
		err = s.supports(topUnder)
	}
	if err == nil && under != "" && under != "/" && znode.CheckPath(under) != nil {
		err = usage("--under: %w", znode.CheckPath(under))
	}
	if err != nil {
		return err
	}
	for _, name := range elections {
		one := *s
		one.election = name
		if err := one.check(); err != nil {
			return err
		}
	}
	return s.check()
}

// newFeed returns a feed of elections that topSupports has accepted.
func newFeed(b backend, under string, interval time.Duration) *feed {
	f := &feed{at: b.at, under: under, interval: interval, messages: make(chan top.Message)}
	if b.at == nil {
		f.at = func(string) backend { return b }
	}
	if under != "" {
		f.find = b.find
	}
	return f
}

// start begins to follow elections, and to search for more.
func (f *feed) start(ctx context.Context, elections []string) {
	for i, name := range elections {
		if !slices.Contains(elections[:i], name) {
			f.tasks.Go(func() { f.follow(ctx, name) })
		}
	}
	if f.find != nil {
		f.tasks.Go(func() { f.search(ctx) })
	}
}

// send hands a message to the screen, unless ctx is done.
func (f *feed) send(ctx context.Context, m top.Message) {
	select {
	case f.messages <- m:
	case <-ctx.Done():
	}
}

// request asks a candidate to hand over, and sends the result to the screen.
func (f *feed) request(ctx context.Context, r top.Request) {
	f.tasks.Go(func() {
		limited, cancel := context.WithTimeoutCause(ctx, resignTimeout, fmt.Errorf("not within %v", resignTimeout))
		defer cancel()
		err := fmt.Errorf("%w of this backend", errors.ErrUnsupported)
		if ask := f.at(r.Election).askToResign; ask != nil {
			err = ask(limited, place{Name: r.Candidate.Name, ID: r.Candidate.ID})
		}
		f.send(ctx, top.Resigned{At: time.Now(), Request: r, Err: err})
	})
}

// search looks for elections at an interval, and follows those that it finds.
func (f *feed) search(ctx context.Context) {
	followed := map[string]bool{}
	again := time.NewTicker(surveyEvery * f.interval)
	defer again.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, answerLimit)
		names, all, err := f.find(limited, f.under)
		cancel()
		m := top.Found{Elections: names}
		switch {
		case err != nil:
			m.Note = err.Error()
		case !all:
			m.Note = fmt.Sprintf("more than %d znodes under %s: not all are looked at", findLimit, f.under)
		}
		f.send(ctx, m)
		for _, name := range names {
			if !followed[name] {
				followed[name] = true
				f.tasks.Go(func() { f.follow(ctx, name) })
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// follow lists the candidates of an election at each change of its leader, and at each interval.
func (f *feed) follow(ctx context.Context, name string) {
	b := f.at(name)
	var changes <-chan observation
	again := time.NewTicker(f.interval)
	defer again.Stop()
	for {
		limited, cancel := context.WithTimeoutCause(ctx, answerLimit, errNoAnswer)
		places, err := b.list(limited)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			f.send(ctx, top.Failed{At: time.Now(), Election: name, Err: err, Gone: b.missing != nil && b.missing(err)})
		} else {
			f.send(ctx, top.Heard{At: time.Now(), Election: name, Candidates: candidates(places)})
			if changes == nil {
				changes, _ = b.watch(ctx) // list reports the error
			}
		}
		select {
		case o, ok := <-changes:
			if !ok || o.err != nil {
				changes = nil // it is watched again after the next answer
			}
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

var errNoAnswer = errors.New("the backend does not answer")

func candidates(places []place) []top.Candidate {
	line := make([]top.Candidate, len(places))
	for i, p := range places {
		line[i] = top.Candidate{Name: p.Name, ID: p.ID, Session: p.Session, Token: p.Token, Since: p.Joined}
	}
	return line
}
