package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
	"github.com/go-leaderelection/leaderelection/event"
)

// quietTime is the quiet time of feeds in tests.
const quietTime = 2 * time.Second

// lateStore is a store whose watches report writes late: delay returns, for the time of a write, the time at which it
// is reported, or the zero time if it is never reported.
type lateStore struct {
	changefeed.Store
	feeds *store.Feeds
	delay func(written time.Time) time.Time

	mu      sync.Mutex
	reads   int
	watches int // watches is the number of watches that were started.
}

func (l *lateStore) Read(ctx context.Context) (changefeed.Record, error) {
	l.mu.Lock()
	l.reads++
	l.mu.Unlock()
	return l.Store.Read(ctx)
}

func (l *lateStore) countCalls() (reads, watches int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads, l.watches
}

func (l *lateStore) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	return l.feeds.Subscribe(ctx)
}

// watch is a [store.WatchFunc] that reports writes as delay determines.
func (l *lateStore) watch(ctx context.Context, report func(changefeed.Event)) error {
	l.mu.Lock()
	l.watches++
	l.mu.Unlock()
	feed, err := l.Store.Subscribe(ctx)
	if err != nil {
		return err
	}
	defer feed.Close()
	report(changefeed.Event{})
	events := make(chan changefeed.Event, 10000)
	var listener sync.WaitGroup
	defer listener.Wait()
	listener.Go(func() {
		for {
			e, err := feed.Next(ctx)
			if err != nil {
				return
			}
			events <- e
		}
	})
	for {
		select {
		case e := <-events:
			at := l.delay(e.Record.Time)
			wait := time.Until(at)
			if at.IsZero() {
				wait = 1000 * time.Hour
			}
			select {
			case <-time.After(wait):
				report(e)
			case <-ctx.Done():
				return ctx.Err()
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *lateStore) Close() error {
	_ = l.feeds.Close()
	return l.Store.Close()
}

func newLateStore(table *memory.Table, delay func(time.Time) time.Time) *lateStore {
	l := &lateStore{Store: table.Store("election"), delay: delay}
	l.feeds = store.NewFeeds(l.Read, l.watch, quietTime)
	return l
}

// atMultiplesOf returns a delay with which writes are reported at the next multiple of period, as a sharded cluster with
// an idle shard reports them.
func atMultiplesOf(period time.Duration) func(time.Time) time.Time {
	return func(written time.Time) time.Time { return written.Truncate(period).Add(period) }
}

func reportPromptly(written time.Time) time.Time { return written.Add(time.Millisecond) }

// neverReport is a delay with which no write is reported.
func neverReport(time.Time) time.Time { return time.Time{} }

// measureLag writes once a second. It returns the greatest time from a write until the feed delivers it.
func measureLag(t *testing.T, s *lateStore, writes int) (most time.Duration) {
	require.NoError(t, s.Create(t.Context(), changefeed.Record{Epoch: "e", Seq: 1, TTL: time.Second}))
	feed, err := s.Subscribe(t.Context())
	require.NoError(t, err)
	defer feed.Close()
	r, err := s.Store.Read(t.Context())
	require.NoError(t, err)
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		for range writes {
			time.Sleep(time.Second)
			next := r
			next.Seq++
			r, err = s.Heartbeat(context.Background(), r, next)
			if err != nil {
				panic(err)
			}
		}
	})
	for seq := uint64(1); seq < uint64(writes)+1; {
		e, err := feed.Next(t.Context())
		require.NoError(t, err)
		require.Greater(t, e.Record.Seq, seq-1)
		seq = e.Record.Seq
		if seq > 1 {
			most = max(most, time.Since(e.Record.Time))
		}
	}
	return most
}

// TestFeed_DeliversWritesInTimeDespiteLateWatch checks that the feed of a late watch delivers writes in time
// and does not end, and that the feed of a timely watch does not read after the watch has reported a write.
func TestFeed_DeliversWritesInTimeDespiteLateWatch(t *testing.T) {
	for _, c := range []struct {
		name  string
		delay func(time.Time) time.Time
		lag   time.Duration
		// reads and watches are the greatest permitted numbers of reads and watches.
		reads, watches int
	}{
		{"OnTime", reportPromptly, time.Millisecond, 4, 1},
		{"After1s", atMultiplesOf(time.Second), time.Second, 1300, 1},
		{"After10s", atMultiplesOf(10 * time.Second), quietTime / 4, 1300, 4},
		{"Never", neverReport, quietTime / 4, 1300, 13},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLateStore(memory.NewTable(), c.delay)
				defer s.Close()
				require.LessOrEqual(t, measureLag(t, s, 600), c.lag)
				reads, watches := s.countCalls()
				require.LessOrEqual(t, reads, c.reads)
				require.LessOrEqual(t, watches, c.watches)
			})
		})
	}
}

// TestFeed_ReplacesSilentWatch checks that a feed replaces a watch that has become silent.
func TestFeed_ReplacesSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		silent := func(written time.Time) time.Time {
			if since := written.Sub(begin); since > 10*time.Second && since < 12*time.Second {
				return time.Time{} // From this write on, the watch reports nothing.
			}
			return reportPromptly(written)
		}
		s := newLateStore(memory.NewTable(), silent)
		defer s.Close()
		require.LessOrEqual(t, measureLag(t, s, 100), quietTime)
		reads, watches := s.countCalls()
		require.Equal(t, 2, watches)
		require.Less(t, reads, 100, "the feed reads although the second watch is timely")
	})
}

// TestFeed_LateWatchesDoNotChangeLeader checks that late watches neither change the leader nor make a feed fail.
func TestFeed_LateWatchesDoNotChangeLeader(t *testing.T) {
	for name, delay := range map[string]func(time.Time) time.Time{
		"OnTime": reportPromptly, "After1s": atMultiplesOf(time.Second), "After10s": atMultiplesOf(10 * time.Second), "After60s": atMultiplesOf(time.Minute), "Never": neverReport,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				table := memory.NewTable()
				var candidates sync.WaitGroup
				leaderships := make(chan string, 1000)
				for _, id := range []string{"one", "two"} {
					s := newLateStore(table, delay)
					defer s.Close()
					e, err := changefeed.NewElection(s, changefeed.WithContext(ctx), changefeed.WithID(id))
					require.NoError(t, err)
					events := e.Events()
					candidates.Go(func() {
						if err := e.ElectLeader(); err != nil {
							panic(err)
						}
					})
					candidates.Go(func() {
						token := int64(0)
						for status := range e.Status() {
							if status.Role == leaderelection.Leader && status.Leadership.Token() != token {
								token = status.Leadership.Token()
								leaderships <- id
							}
						}
					})
					candidates.Go(func() {
						for received := range events {
							if received.Kind == event.WatchFailed {
								t.Errorf("%s: %v", id, received.Err)
							}
						}
					})
				}
				<-ctx.Done()
				require.Len(t, leaderships, 1)
				candidates.Wait()
			})
		})
	}
}

// scriptedWatch is a watch whose reports and end the test determines, together with the record that its feed reads.
type scriptedWatch struct {
	feeds   *store.Feeds
	reports chan changefeed.Event
	ends    chan error

	mu      sync.Mutex
	watches int // watches is the number of watches that were started.
	reads   int
	record  changefeed.Record // record and err are the result of a read.
	err     error
}

func newScriptedWatch(quiet time.Duration) *scriptedWatch {
	s := &scriptedWatch{reports: make(chan changefeed.Event), ends: make(chan error)}
	s.feeds = store.NewFeeds(s.read, s.watch, quiet)
	return s
}

func (s *scriptedWatch) read(context.Context) (changefeed.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return s.record, s.err
}

func (s *scriptedWatch) watch(ctx context.Context, report func(changefeed.Event)) error {
	s.mu.Lock()
	s.watches++
	s.mu.Unlock()
	for {
		select {
		case e := <-s.reports:
			report(e)
		case err := <-s.ends:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// set sets the result of later reads.
func (s *scriptedWatch) set(r changefeed.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record, s.err = r, err
}

// countCalls returns the number of reads, and of watches that were started.
func (s *scriptedWatch) countCalls() (reads, watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads, s.watches
}

// requireReads requires that the feed has read the record n times.
func (s *scriptedWatch) requireReads(t *testing.T, n int) {
	t.Helper()
	reads, _ := s.countCalls()
	require.Equal(t, n, reads)
}

// requireWatches requires that the feed has started n watches.
func (s *scriptedWatch) requireWatches(t *testing.T, n int) {
	t.Helper()
	_, watches := s.countCalls()
	require.Equal(t, n, watches)
}

// runFeedTest runs a test in fake time with the feed of a scriptedWatch.
func runFeedTest(t *testing.T, quiet time.Duration, f func(t *testing.T, s *scriptedWatch, feed changefeed.Feed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedWatch(quiet)
		defer s.feeds.Close()
		feed, err := s.feeds.Subscribe(t.Context())
		require.NoError(t, err)
		f(t, s, feed)
		require.NoError(t, feed.Close())
	})
}

func nextEvent(t *testing.T, feed changefeed.Feed) changefeed.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	e, err := feed.Next(ctx)
	require.NoError(t, err)
	return e
}

// requireNoEvent requires that the feed has nothing to deliver.
func requireNoEvent(t *testing.T, feed changefeed.Feed) {
	t.Helper()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, err := feed.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func recordWithSeq(seq uint64) changefeed.Record {
	return changefeed.Record{Epoch: "e", Leader: "one", Session: "s", Term: 7, Seq: seq, Version: fmt.Sprint(seq)}
}

// TestFeed_DeliversReportedRecordsWithoutReads checks that a feed delivers a record that the database sends
// once, and without a read.
func TestFeed_DeliversReportedRecordsWithoutReads(t *testing.T) {
	runFeedTest(t, 0, func(t *testing.T, s *scriptedWatch, feed changefeed.Feed) {
		for seq := range uint64(3) {
			e := changefeed.Event{Record: recordWithSeq(seq + 1)}
			s.reports <- e
			require.Equal(t, e, nextEvent(t, feed))
			s.reports <- e
			requireNoEvent(t, feed)
		}
		s.requireReads(t, 0)
	})
}

// TestFeed_UnclearReportsCauseRead checks that a report causes a read if it may be older than the last event, and that
// the result of the read is delivered.
func TestFeed_UnclearReportsCauseRead(t *testing.T) {
	other, again := recordWithSeq(9), recordWithSeq(5)
	other.Epoch, again.Version = "another", "another"
	for name, e := range map[string]changefeed.Event{
		"Unknown":     {},
		"OtherEpoch":  {Record: other},
		"Missing":     {Missing: true},
		"Older":       {Record: recordWithSeq(2)},
		"SameSeq":     {Record: again},
		"EndedByHint": {Record: changefeed.Record{Epoch: "e", Leader: "one", Session: "s", Term: 7, Seq: 6, Version: "x", Ended: true}, Hint: true},
		"TermByHint":  {Record: changefeed.Record{Epoch: "e", Leader: "one", Session: "s", Term: 8, Seq: 6, Version: "x"}, Hint: true},
		"SkipByHint":  {Record: recordWithSeq(7), Hint: true},
		"NoneByHint":  {Missing: true, Hint: true},
	} {
		t.Run(name, func(t *testing.T) {
			runFeedTest(t, 0, func(t *testing.T, s *scriptedWatch, feed changefeed.Feed) {
				s.reports <- changefeed.Event{Record: recordWithSeq(5)}
				require.Equal(t, changefeed.Event{Record: recordWithSeq(5)}, nextEvent(t, feed))
				s.set(recordWithSeq(5), nil)
				s.reports <- e
				requireNoEvent(t, feed)
				s.requireReads(t, 1)
				s.set(recordWithSeq(3), nil) // Now the store has returned to an older state.
				s.reports <- e
				require.Equal(t, changefeed.Event{Record: recordWithSeq(3)}, nextEvent(t, feed))
				s.requireReads(t, 2)
			})
		})
	}
}

// TestFeed_HintIsDeliveredWithoutRead checks that a hint of the leader's next heartbeat is delivered without
// a read, and that a read that shows that the hint was false is delivered.
func TestFeed_HintIsDeliveredWithoutRead(t *testing.T) {
	runFeedTest(t, quietTime, func(t *testing.T, s *scriptedWatch, feed changefeed.Feed) {
		s.set(recordWithSeq(1), nil)
		s.reports <- changefeed.Event{}
		require.Equal(t, changefeed.Event{Record: recordWithSeq(1)}, nextEvent(t, feed))
		hint := changefeed.Event{Record: recordWithSeq(2), Hint: true}
		s.reports <- hint
		require.Equal(t, hint, nextEvent(t, feed))
		s.requireReads(t, 1)
		begin := time.Now()
		require.Equal(t, changefeed.Event{Record: recordWithSeq(1)}, nextEvent(t, feed), "the hint was false")
		require.Equal(t, quietTime, time.Since(begin), "the feed reads after the quiet time")
		s.requireReads(t, 2)
	})
}

// TestFeed_HintOtherThanHeartbeatCausesRead checks that a hint that is not the next heartbeat of the leader is not
// delivered, and that it causes a read.
func TestFeed_HintOtherThanHeartbeatCausesRead(t *testing.T) {
	led := changefeed.Record{Epoch: "e", Leader: "p", Session: "s", Term: 7, Seq: 5, TTL: time.Second, Version: "v"}
	free := led
	free.Leader, free.Session, free.TTL = "", "", 0
	for name, c := range map[string]struct {
		last   changefeed.Event
		change func(*changefeed.Record)
	}{
		"Missing":  {changefeed.Event{Missing: true}, func(*changefeed.Record) {}},
		"NoLeader": {changefeed.Event{Record: free}, func(r *changefeed.Record) { r.Leader, r.Session, r.TTL = "", "", 0 }},
		"Epoch":    {changefeed.Event{Record: led}, func(r *changefeed.Record) { r.Epoch = "another" }},
		"Leader":   {changefeed.Event{Record: led}, func(r *changefeed.Record) { r.Leader = "q" }},
		"Release":  {changefeed.Event{Record: led}, func(r *changefeed.Record) { r.Leader, r.Session, r.TTL = "", "", 0 }},
		"Session":  {changefeed.Event{Record: led}, func(r *changefeed.Record) { r.Session = "another" }},
		"Nominee":  {changefeed.Event{Record: led}, func(r *changefeed.Record) { r.Nominee = "q" }},
		"Term":     {changefeed.Event{Record: led}, func(r *changefeed.Record) { r.Term++ }},
		"TTL":      {changefeed.Event{Record: led}, func(r *changefeed.Record) { r.TTL-- }},
		"Ended":    {changefeed.Event{Record: led}, func(r *changefeed.Record) { r.Ended = true }},
		"SeqSame":  {changefeed.Event{Record: led}, func(r *changefeed.Record) { r.Seq = 5 }},
		"SeqBack":  {changefeed.Event{Record: led}, func(r *changefeed.Record) { r.Seq = 4 }},
		"SeqFar":   {changefeed.Event{Record: led}, func(r *changefeed.Record) { r.Seq = 1000 }},
	} {
		t.Run(name, func(t *testing.T) {
			runFeedTest(t, 0, func(t *testing.T, s *scriptedWatch, feed changefeed.Feed) {
				s.set(c.last.Record, nil)
				if c.last.Missing {
					s.set(changefeed.Record{}, changefeed.ErrNoRecord)
				}
				s.reports <- changefeed.Event{}
				require.Equal(t, c.last, nextEvent(t, feed))
				r := led
				r.Seq, r.Version = 6, "w"
				c.change(&r)
				s.reports <- changefeed.Event{Record: r, Hint: true}
				requireNoEvent(t, feed)
				s.requireReads(t, 2)
			})
		})
	}
}

// TestFeed_ReadThatConfirmsHintIsDelivered checks that a feed delivers a record that it has read,
// although it has delivered the same record as a hint before.
func TestFeed_ReadThatConfirmsHintIsDelivered(t *testing.T) {
	runFeedTest(t, quietTime, func(t *testing.T, s *scriptedWatch, feed changefeed.Feed) {
		s.set(recordWithSeq(1), nil)
		s.reports <- changefeed.Event{}
		require.Equal(t, changefeed.Event{Record: recordWithSeq(1)}, nextEvent(t, feed))
		s.set(recordWithSeq(2), nil)
		s.reports <- changefeed.Event{Record: recordWithSeq(2), Hint: true}
		require.True(t, nextEvent(t, feed).Hint)
		require.Equal(t, changefeed.Event{Record: recordWithSeq(2)}, nextEvent(t, feed))
		time.Sleep(10 * quietTime)
		requireNoEvent(t, feed)
	})
}

// TestFeed_FirstEventIsNotHint checks that a feed reads the record for its first event, even if the
// watch reports a hint.
func TestFeed_FirstEventIsNotHint(t *testing.T) {
	runFeedTest(t, 0, func(t *testing.T, s *scriptedWatch, feed changefeed.Feed) {
		s.set(recordWithSeq(1), nil)
		s.reports <- changefeed.Event{Record: recordWithSeq(2), Hint: true}
		require.Equal(t, changefeed.Event{Record: recordWithSeq(1)}, nextEvent(t, feed))
	})
}

// TestFeed_LateReaderReceivesNewestEvent checks that a reader that has not called Next for some time receives only the
// newest event, and not those that it has missed.
func TestFeed_LateReaderReceivesNewestEvent(t *testing.T) {
	runFeedTest(t, 0, func(t *testing.T, s *scriptedWatch, feed changefeed.Feed) {
		for seq := range uint64(100) {
			s.reports <- changefeed.Event{Record: recordWithSeq(seq + 1)}
		}
		synctest.Wait()
		require.EqualValues(t, 100, nextEvent(t, feed).Record.Seq)
		requireNoEvent(t, feed)
	})
}

// TestFeed_StartsNextWatchAfterReturn checks that a feed starts the next watch immediately when a watch returns nil,
// and that it reports a missing record and starts the next watch when a watch returns ErrNoRecord.
func TestFeed_StartsNextWatchAfterReturn(t *testing.T) {
	runFeedTest(t, quietTime, func(t *testing.T, s *scriptedWatch, feed changefeed.Feed) {
		begin := time.Now()
		s.ends <- nil
		synctest.Wait()
		s.requireWatches(t, 2)
		require.Zero(t, time.Since(begin))
		s.ends <- fmt.Errorf("no table: %w", changefeed.ErrNoRecord)
		require.Equal(t, changefeed.Event{Missing: true}, nextEvent(t, feed))
		s.requireWatches(t, 2)
		s.set(recordWithSeq(1), nil)
		s.reports <- changefeed.Event{}
		require.Positive(t, time.Since(begin))
		s.requireWatches(t, 3)
		require.Equal(t, changefeed.Event{Record: recordWithSeq(1)}, nextEvent(t, feed))
	})
}

// TestFeed_EndsWithError checks that an error of the watch or of a read ends the feed, even while there is an
// unread event.
func TestFeed_EndsWithError(t *testing.T) {
	failed := errors.New("failed")
	for name, fail := range map[string]func(s *scriptedWatch){
		"Watch": func(s *scriptedWatch) { s.ends <- failed },
		"Read":  func(s *scriptedWatch) { s.set(changefeed.Record{}, failed); s.reports <- changefeed.Event{} },
		"Quiet": func(s *scriptedWatch) { s.set(changefeed.Record{}, failed); time.Sleep(quietTime) },
	} {
		t.Run(name, func(t *testing.T) {
			runFeedTest(t, quietTime, func(t *testing.T, s *scriptedWatch, feed changefeed.Feed) {
				s.reports <- changefeed.Event{Record: recordWithSeq(1)}
				fail(s)
				synctest.Wait()
				_, err := feed.Next(t.Context())
				require.ErrorIs(t, err, failed)
			})
		})
	}
}

// TestFeed_LimitsReadsPerHeartbeat checks that a feed whose watch reports every write promptly reads the record at
// most three times per heartbeat, even when the reports are hints or contain no record.
func TestFeed_LimitsReadsPerHeartbeat(t *testing.T) {
	// At this interval, the quiet time passes between two heartbeats, after which a feed may read twice.
	const heartbeat, heartbeats = 5700 * time.Millisecond, 100
	for name, report := range map[string]func(changefeed.Record) changefeed.Event{
		"Record": func(r changefeed.Record) changefeed.Event { return changefeed.Event{Record: r} },
		"Hint":   func(r changefeed.Record) changefeed.Event { return changefeed.Event{Record: r, Hint: true} },
		"Zero":   func(changefeed.Record) changefeed.Event { return changefeed.Event{} },
	} {
		t.Run(name, func(t *testing.T) {
			runFeedTest(t, quietTime, func(t *testing.T, s *scriptedWatch, feed changefeed.Feed) {
				go func() {
					for {
						if _, err := feed.Next(context.Background()); err != nil {
							return
						}
					}
				}()
				s.set(recordWithSeq(1), nil)
				s.reports <- changefeed.Event{}
				for i := range uint64(heartbeats) {
					time.Sleep(heartbeat)
					s.set(recordWithSeq(i+2), nil)
					s.reports <- report(recordWithSeq(i + 2))
				}
				synctest.Wait()
				reads, watches := s.countCalls()
				require.LessOrEqual(t, reads, 3*heartbeats+10)
				require.Equal(t, 1, watches, "the watch was replaced")
			})
		})
	}
}

// TestFeed_EndsIfWatchReportsNothing checks that a feed ends if its watch reports nothing after the
// start.
func TestFeed_EndsIfWatchReportsNothing(t *testing.T) {
	runFeedTest(t, quietTime, func(t *testing.T, s *scriptedWatch, feed changefeed.Feed) {
		begin := time.Now()
		_, err := feed.Next(t.Context())
		require.ErrorContains(t, err, "not established")
		require.Equal(t, 10*time.Second, time.Since(begin), "connecting may take longer than the quiet time")
	})
}
