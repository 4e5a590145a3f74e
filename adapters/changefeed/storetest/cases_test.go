package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// runCase runs a case and returns the failures that it reports.
func runCase(c storetest.Case, f storetest.Factory) []string {
	return testenv.Record(func(t testing.TB) { c.Run(t, f) }).Failures()
}

// flawedStore is a store in memory with one flaw, which violates the contract of stores.
type flawedStore struct {
	changefeed.Store
	table *memory.Table
	flaw  string
	mu    *sync.Mutex   // mu is shared by all stores of a table.
	stop  chan struct{} // stop ends the goroutines of the flaw FeedLeaksGoroutines.
}

func (s *flawedStore) Create(ctx context.Context, blank changefeed.Record) error {
	switch s.flaw {
	case "CreateOverwrites":
		s.table.Lose("election")
	case "CreateFails":
		if _, err := s.Store.Read(ctx); err == nil {
			return errors.New("the record exists")
		}
	}
	return s.Store.Create(ctx, blank)
}

func (s *flawedStore) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
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
		next.Leader = next.Leader[:min(len(next.Leader), changefeed.MaxID-1)]
	case "RejectsLongIDs": // the IDs are longer than those of candidates, so a store may reject them
		if len(next.Leader) > changefeed.MaxID || len(next.Nominee) > changefeed.MaxID {
			return prev, fmt.Errorf("%w: the ID is too long", changefeed.ErrUnsuitable)
		}
	case "RoundsTTL":
		next.TTL = next.TTL.Round(time.Millisecond)
	case "RoundsTerm": // a database that stores numbers as float32 has this flaw
		next.Term = uint64(float32(next.Term))
	case "SkipsUnchanged":
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

func (s *flawedStore) Read(ctx context.Context) (changefeed.Record, error) {
	r, err := s.Store.Read(ctx)
	if s.flaw == "MissingIsEmpty" && errors.Is(err, changefeed.ErrNoRecord) {
		err = nil
	}
	return r, err
}

func (s *flawedStore) Close() error {
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

func (s *flawedStore) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	f, err := s.Store.Subscribe(ctx)
	if err != nil {
		return nil, err
	}
	switch s.flaw {
	case "NoFirstEvent":
		_, _ = f.Next(ctx)
	case "FeedLeaksGoroutines":
		go func() { <-s.stop }()
	}
	return &flawedFeed{Feed: f, store: s, subscribeCtx: ctx}, nil
}

type flawedFeed struct {
	changefeed.Feed
	store        *flawedStore
	subscribeCtx context.Context // subscribeCtx is the context of Subscribe.
	events       int             // events is the number of received events.
	held         *changefeed.Event
}

func (f *flawedFeed) Next(ctx context.Context) (changefeed.Event, error) {
	if f.store.flaw == "FeedEndsWithContext" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(f.subscribeCtx, cancel)()
	}
	if f.store.flaw == "FeedIgnoresContext" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
	}
	e, err := f.Feed.Next(ctx)
	if err != nil {
		if f.store.flaw == "FeedBreaks" {
			f.Feed.Close() // the flaw: a context that is done closes the feed
		}
		return e, err
	}
	f.events++
	switch {
	case f.store.flaw == "FeedLosesLast" && f.events > 1:
		old := f.held
		f.held = &e
		if old != nil {
			return *old, nil
		}
		return f.Next(ctx)
	case f.store.flaw == "FeedGoesBack" && f.events > 1:
		if f.held != nil {
			old := *f.held
			f.held = nil
			return old, nil
		}
	case f.store.flaw == "FeedMissesLoss" && e.Missing && f.events > 1:
		return f.Next(ctx)
	}
	if f.store.flaw == "FeedGoesBack" {
		f.held = &e
	}
	return e, nil
}

func (f *flawedFeed) Close() error {
	if f.store.flaw == "FeedCloseBlocks" {
		time.Sleep(15 * time.Second)
	}
	if f.store.flaw == "FeedCloseDoesNothing" {
		return nil
	}
	return f.Feed.Close()
}

// TestCases_FailForFlawedStores checks that a store that lacks a property fails the case that tests this property.
func TestCases_FailForFlawedStores(t *testing.T) {
	for flaw, name := range map[string]string{
		"CreateOverwrites":     "CreateKeepsRecord",
		"CreateFails":          "Create",
		"NoCompare":            "CompareAndSet",
		"Upserts":              "MissingRecord",
		"ConflictSucceeds":     "ConcurrentHeartbeats",
		"ForgetsNominee":       "AllFields",
		"Truncates":            "AllFields",
		"RoundsTTL":            "AllFields",
		"RoundsTerm":           "AllFields",
		"SkipsUnchanged":       "UnchangedHeartbeat",
		"IgnoresContext":       "ContextDone",
		"OldVersion":           "UnchangedHeartbeat",
		"LossIsConflict":       "DeletedRecord",
		"MissingIsEmpty":       "MissingRecord",
		"CloseTwice":           "ClosedStore",
		"CloseDoesNothing":     "ClosedStore",
		"NoFirstEvent":         "FeedFirstEvent",
		"FeedLeaksGoroutines":  "GoroutineLeaks",
		"FeedEndsWithContext":  "FeedOutlivesContext",
		"FeedIgnoresContext":   "FeedContext",
		"FeedBreaks":           "FeedContext",
		"FeedLosesLast":        "FeedLastWrite",
		"FeedGoesBack":         "FeedLastWrite",
		"FeedMissesLoss":       "FeedDeletedRecord",
		"FeedCloseBlocks":      "FeedClose",
		"FeedCloseDoesNothing": "FeedClose",
	} {
		t.Run(flaw, func(t *testing.T) {
			cases := storetest.Cases()
			i := slices.IndexFunc(cases, func(c storetest.Case) bool { return c.Name == name })
			require.NotEqual(t, -1, i, "there is no case %s", name)
			failures := runFlawedCase(t, cases[i], flaw)
			require.NotEmpty(t, failures)
			t.Log(strings.Join(failures, "\n"))
		})
	}
}

// TestCases_DoNotRequireLongerIDs checks that a case does not require that a store keeps longer IDs than
// candidates can have.
func TestCases_DoNotRequireLongerIDs(t *testing.T) {
	for _, c := range storetest.Cases() {
		if c.Name == "AllFields" {
			require.Empty(t, runFlawedCase(t, c, "RejectsLongIDs"))
			return
		}
	}
	require.Fail(t, "there is no case AllFields")
}

// runFlawedCase runs a case on a store with a flaw in fake time, so that the result does not depend on
// the speed of the machine. It returns the failures that the case reports.
func runFlawedCase(t *testing.T, c storetest.Case, flaw string) (failures []string) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		stop := make(chan struct{})
		defer close(stop)
		failures = runCase(c, func(testing.TB) *storetest.Backend {
			table := memory.NewTable()
			return &storetest.Backend{
				New: func(testing.TB) changefeed.Store {
					s := table.Store("election")
					t.Cleanup(func() { _ = s.Close() }) // A flaw may prevent that the case closes the store.
					return &flawedStore{Store: s, table: table, flaw: flaw, mu: &mu, stop: stop}
				},
				Lose: func(testing.TB) { table.Lose("election") },
			}
		})
		time.Sleep(time.Minute) // wait until all calls of the case have returned
	})
	return failures
}
