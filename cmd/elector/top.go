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
)

// onlooker is a backend for one who looks on.
type onlooker interface {
	lister
	watcher
}

// overlooker is a backend that looks on at many elections by one connection.
type overlooker interface {
	at(election string) onlooker
}

// surveyor is one that finds them too.
type surveyor interface {
	// find lists the elections under a parent; all is false if there may be more.
	find(ctx context.Context, under string) (elections []string, all bool, err error)
}

const (
	// answerLimit is how long to wait for one answer until the screen says that there is none.
	answerLimit = 3 * time.Second
	// surveyEvery is how many intervals are between two searches for elections.
	surveyEvery = 5
)

func newTop(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "top [election ...]", Short: "Show elections live, on the whole terminal",
		Long: `top shows who leads each election, by which token, since when, and how many wait, and for the
selected one who stands in which order. It takes no part. A change of leaders is seen at once,
other changes within --interval. While the backend does not answer it shows what was known
before, and says so.

Without an argument it shows --election, or with --under all elections that it finds below
a znode, now and later: those that have candidates. Keys: up, down, tab or enter, ? for help,
q to quit. NO_COLOR turns colours off.`,
		Example: `  elector top --backend zookeeper --zookeeper-servers localhost /jobs/report /jobs/clean
  elector top --backend zookeeper --zookeeper-servers zk1,zk2,zk3 --under /jobs`,
	}
	under := cmd.Flags().String("under", "", "show all elections below this znode")
	interval := cmd.Flags().Duration("interval", time.Second, "how often to ask who waits")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0 && *under != "":
			return usage("either elections or --under, not both")
		case *interval < 100*time.Millisecond:
			return usage("--interval %v: less than 100ms", *interval)
		case !term.IsTerminal(int(os.Stdout.Fd())) || os.Getenv("TERM") == "dumb":
			return usage("top needs a terminal; elector watch and elector status do not")
		}
		if len(args) == 0 && *under == "" {
			args = []string{s.election}
		}
		return s.top(cmd.Context(), args, *under, *interval)
	}
	return cmd
}

// top shows elections until the user quits, or a signal.
func (s *settings) top(ctx context.Context, elections []string, under string, interval time.Duration) error {
	s.log = slog.New(slog.DiscardHandler) // what is wrong is on the screen
	b, err := s.open()
	if err != nil {
		return err
	}
	defer b.close()
	f, err := s.newFeed(b, under, interval)
	if err != nil {
		return err
	}
	for _, name := range elections {
		if _, err := f.look(name); err != nil {
			return err
		}
	}
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
	return endedBySignal(ctx, top.Run(ctx, screen, top.New(about, time.Now(), elections...), f.messages))
}

// feed tells the screen what happens.
type feed struct {
	look     func(election string) (onlooker, error)
	survey   surveyor // nil without --under
	under    string
	interval time.Duration
	messages chan top.Message
	tasks    sync.WaitGroup
}

// newFeed refuses what the backend cannot do.
func (s *settings) newFeed(b backend, under string, interval time.Duration) (*feed, error) {
	f := &feed{under: under, interval: interval, messages: make(chan top.Message)}
	many, ok := b.(overlooker)
	switch one, looks := b.(onlooker); {
	case !looks:
		return nil, s.lacking("be looked at")
	case ok:
		f.look = func(election string) (onlooker, error) { return many.at(election), nil }
	default:
		f.look = func(election string) (onlooker, error) {
			if election != s.election {
				return nil, s.lacking("show another election than --election")
			}
			return one, nil
		}
	}
	if under != "" {
		if f.survey, ok = b.(surveyor); !ok {
			return nil, s.lacking("find elections")
		}
	}
	return f, nil
}

// start begins to look on at elections, and to look for more.
func (f *feed) start(ctx context.Context, elections []string) {
	for i, name := range elections {
		if !slices.Contains(elections[:i], name) {
			f.tasks.Go(func() { f.follow(ctx, name) })
		}
	}
	if f.survey != nil {
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

// search looks for elections time and again. One that was found is followed from then on.
func (f *feed) search(ctx context.Context) {
	followed := map[string]bool{}
	again := time.NewTicker(surveyEvery * f.interval)
	defer again.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, answerLimit)
		names, all, err := f.survey.find(limited, f.under)
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

// follow tells of one election: at each change of its leader, and at each interval.
func (f *feed) follow(ctx context.Context, name string) {
	look, err := f.look(name)
	if err != nil {
		f.send(ctx, top.Failed{At: time.Now(), Election: name, Err: err})
		return
	}
	gone, _ := look.(interface{ missing(error) bool })
	var changes <-chan observation
	again := time.NewTicker(f.interval)
	defer again.Stop()
	for {
		limited, cancel := context.WithTimeoutCause(ctx, answerLimit, errNoAnswer)
		places, err := look.list(limited)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			f.send(ctx, top.Failed{At: time.Now(), Election: name, Err: err, Gone: gone != nil && gone.missing(err)})
		} else {
			f.send(ctx, top.Heard{At: time.Now(), Election: name, Candidates: candidates(places)})
			if changes == nil {
				changes, _ = look.watch(ctx) // listing tells what is wrong
			}
		}
		select {
		case o, ok := <-changes:
			if !ok || o.err != nil {
				changes = nil // it is watched anew when there is something to watch
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
