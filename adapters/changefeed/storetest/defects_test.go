package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

// recorder notes failures, in the place of a test.
type recorder struct {
	testing.TB // for what is not used

	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()              {}
func (r *recorder) Logf(string, ...any)  {}
func (r *recorder) Skipf(string, ...any) { runtime.Goexit() }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// play plays a case and returns what it reports.
func play(c storetest.Case, f storetest.Factory) []string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(r, f)
	}()
	<-done
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	return r.failures
}

// flawed is the store in memory with one thing that is wrong.
type flawed struct {
	*memory.Store
	table *memory.Table
	flaw  string
	mu    *sync.Mutex   // of all that share a table
	stop  chan struct{} // ends the goroutines of FeedLeaks
}

func (s *flawed) Create(ctx context.Context, blank changefeed.Record) error {
	switch s.flaw {
	case "CreateOverwrites":
		s.table.Lose("election")
	case "CreateFails":
		if _, err := s.Store.Read(ctx); err == nil {
			return errors.New("there is one already")
		}
	}
	return s.Store.Create(ctx, blank)
}

func (s *flawed) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.flaw {
	case "NoCompare":
		now, err := s.Store.Read(ctx)
		if err != nil {
			return now, err
		}
		prev = now
	case "Upserts":
		if err := s.Store.Create(ctx, next); err != nil {
			return next, err
		}
	case "ConflictSucceeds":
		r, err := s.Store.Heartbeat(ctx, prev, next)
		if errors.Is(err, changefeed.ErrConflict) {
			r, err = next, nil
			r.Version = "x"
		}
		return r, err
	case "ForgetsNominee":
		next.Nominee = ""
	case "Truncates":
		if len(next.Leader) > 255 {
			next.Leader = next.Leader[:255]
		}
	case "RoundsTTL":
		next.TTL = next.TTL.Round(time.Millisecond)
	case "Doubles": // as a float32 would
		next.Term = uint64(float32(next.Term))
	case "SameIsNoWrite":
		now, err := s.Store.Read(ctx)
		same := now
		same.Seq, same.Time, same.Version = next.Seq, next.Time, next.Version
		if err == nil && now.Version == prev.Version && same == next {
			return now, nil
		}
	case "IgnoresContext":
		ctx = context.WithoutCancel(ctx)
	case "OldVersion":
		r, err := s.Store.Heartbeat(ctx, prev, next)
		r.Version = prev.Version
		return r, err
	case "LossIsConflict":
		r, err := s.Store.Heartbeat(ctx, prev, next)
		if errors.Is(err, changefeed.ErrNoRecord) {
			err = changefeed.ErrConflict
		}
		return r, err
	}
	return s.Store.Heartbeat(ctx, prev, next)
}

func (s *flawed) Read(ctx context.Context) (changefeed.Record, error) {
	r, err := s.Store.Read(ctx)
	if s.flaw == "MissingIsEmpty" && errors.Is(err, changefeed.ErrNoRecord) {
		err = nil
	}
	return r, err
}

func (s *flawed) Close() error {
	if s.flaw == "CloseTwice" {
		if _, err := s.Store.Read(context.Background()); errors.Is(err, changefeed.ErrClosed) {
			return changefeed.ErrClosed
		}
	}
	if s.flaw == "CloseDoesNothing" {
		return nil
	}
	return s.Store.Close()
}

func (s *flawed) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	f, err := s.Store.Subscribe(ctx)
	if err != nil {
		return nil, err
	}
	switch s.flaw {
	case "NoFirstEvent":
		_, _ = f.Next(ctx)
	case "FeedLeaks":
		go func() { <-s.stop }()
	}
	return &flawedFeed{Feed: f, s: s, made: ctx}, nil
}

type flawedFeed struct {
	changefeed.Feed
	s    *flawed
	made context.Context
	n    int
	held *changefeed.Event
}

func (f *flawedFeed) Next(ctx context.Context) (changefeed.Event, error) {
	if f.s.flaw == "FeedOfItsContext" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(f.made, cancel)()
	}
	if f.s.flaw == "FeedHeedsNoContext" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
	}
	e, err := f.Feed.Next(ctx)
	if err != nil {
		if f.s.flaw == "FeedBreaks" {
			f.Feed.Close() // by the end of a context
		}
		return e, err
	}
	f.n++
	switch {
	case f.s.flaw == "FeedLosesLast" && f.n > 1:
		old := f.held
		f.held = &e
		if old != nil {
			return *old, nil
		}
		return f.Next(ctx)
	case f.s.flaw == "FeedGoesBack" && f.n > 1:
		if f.held != nil {
			old := *f.held
			f.held = nil
			return old, nil
		}
	case f.s.flaw == "FeedMissesLoss" && e.Missing && f.n > 1:
		return f.Next(ctx)
	}
	if f.s.flaw == "FeedGoesBack" {
		f.held = &e
	}
	return e, nil
}

func (f *flawedFeed) Close() error {
	if f.s.flaw == "FeedCloseBlocks" {
		time.Sleep(15 * time.Second)
	}
	if f.s.flaw == "FeedCloseDoesNothing" {
		return nil
	}
	return f.Feed.Close()
}

// TestFlawsAreFound: what is wrong is found, by the case that is for it.
func TestFlawsAreFound(t *testing.T) {
	for flaw, by := range map[string]string{
		"CreateOverwrites":     "CreateNeverOverwrites",
		"CreateFails":          "Create",
		"NoCompare":            "CompareAndSet",
		"Upserts":              "NoRecord",
		"ConflictSucceeds":     "Racers",
		"ForgetsNominee":       "KeepsTheRecord",
		"Truncates":            "KeepsTheRecord",
		"RoundsTTL":            "KeepsTheRecord",
		"Doubles":              "KeepsTheRecord",
		"SameIsNoWrite":        "WritesTheSame",
		"IgnoresContext":       "ContextDone",
		"OldVersion":           "WritesTheSame",
		"LossIsConflict":       "Lost",
		"MissingIsEmpty":       "NoRecord",
		"CloseTwice":           "Closed",
		"CloseDoesNothing":     "Closed",
		"NoFirstEvent":         "FeedBegins",
		"FeedLeaks":            "Leaks",
		"FeedOfItsContext":     "FeedLater",
		"FeedHeedsNoContext":   "FeedContext",
		"FeedBreaks":           "FeedContext",
		"FeedLosesLast":        "FeedConverges",
		"FeedGoesBack":         "FeedConverges",
		"FeedMissesLoss":       "FeedLost",
		"FeedCloseBlocks":      "FeedClose",
		"FeedCloseDoesNothing": "FeedClose",
	} {
		t.Run(flaw, func(t *testing.T) {
			for _, c := range storetest.Cases() {
				if c.Name != by {
					continue
				}
				failures := inBubble(t, c, flaw)
				require.NotEmpty(t, failures)
				t.Log(strings.Join(failures, "\n"))
			}
		})
	}
}

// inBubble plays a case with fake time, so that no result depends on the speed of the machine,
// and returns what it reports.
func inBubble(t *testing.T, c storetest.Case, flaw string) (failures []string) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		stop := make(chan struct{})
		defer close(stop)
		failures = play(c, func(testing.TB) *storetest.Backend {
			table := memory.NewTable()
			return &storetest.Backend{
				New: func(testing.TB) changefeed.Store {
					s := table.Store("election")
					t.Cleanup(func() { _ = s.Close() }) // which a flaw may prevent
					return &flawed{Store: s, table: table, flaw: flaw, mu: &mu, stop: stop}
				},
				Lose: func(testing.TB) { table.Lose("election") },
			}
		})
		time.Sleep(time.Minute) // until every call that the case has given up has returned
	})
	return failures
}
