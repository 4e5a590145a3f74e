package changefeed_test

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
)

// quiet is the quiet time of feeds in tests.
const quiet = 2 * time.Second

// late is a store whose watches report a write at the time that delay returns for the time of
// the write; never, if that is zero.
type late struct {
	changefeed.Store
	feeds *changefeed.Feeds
	delay func(written time.Time) time.Time

	mu    sync.Mutex
	reads int
	opens int
}

func (l *late) Read(ctx context.Context) (changefeed.Record, error) {
	l.mu.Lock()
	l.reads++
	l.mu.Unlock()
	return l.Store.Read(ctx)
}

func (l *late) counts() (reads, opens int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads, l.opens
}

func (l *late) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	return l.feeds.Subscribe(ctx)
}

// watch is a [changefeed.WatchFunc].
func (l *late) watch(ctx context.Context, report func(changefeed.Event)) error {
	l.mu.Lock()
	l.opens++
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

func (l *late) Close() error {
	_ = l.feeds.Close()
	return l.Store.Close()
}

func newLate(table *memory.Table, delay func(time.Time) time.Time) *late {
	l := &late{Store: table.Store("election"), delay: delay}
	l.feeds = changefeed.NewFeeds(l.Read, l.watch, quiet)
	return l
}

// ticks delays reports until the next multiple of period, as a sharded cluster with an idle shard does.
func ticks(period time.Duration) func(time.Time) time.Time {
	return func(written time.Time) time.Time { return written.Truncate(period).Add(period) }
}

func promptly(written time.Time) time.Time { return written.Add(time.Millisecond) }

func never(time.Time) time.Time { return time.Time{} }

// lag writes once a second, and returns the greatest delay with which the feed delivers a write.
func lag(t *testing.T, s *late, writes int) (most time.Duration) {
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

// TestFeedOfLateWatch: the feed of a late watch delivers writes soon, and does not end. If the watch
// is on time, the feed does not read once the watch has reported a write.
func TestFeedOfLateWatch(t *testing.T) {
	for _, c := range []struct {
		name  string
		delay func(time.Time) time.Time
		lag   time.Duration
		reads int
		opens int // at most
	}{
		{"OnTime", promptly, time.Millisecond, 4, 1},
		{"After1s", ticks(time.Second), time.Second, 1300, 1},
		{"After10s", ticks(10 * time.Second), quiet / 4, 1300, 4},
		{"Never", never, quiet / 4, 1300, 13},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLate(memory.NewTable(), c.delay)
				defer s.Close()
				require.LessOrEqual(t, lag(t, s, 600), c.lag)
				reads, opens := s.counts()
				require.LessOrEqual(t, reads, c.reads)
				require.LessOrEqual(t, opens, c.opens)
			})
		})
	}
}

// TestFeedReplacesSilentWatch: a watch that has become silent is replaced.
func TestFeedReplacesSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		silent := func(written time.Time) time.Time {
			if since := written.Sub(begin); since > 10*time.Second && since < 12*time.Second {
				return time.Time{} // the watch stops at this write
			}
			return promptly(written)
		}
		s := newLate(memory.NewTable(), silent)
		defer s.Close()
		require.LessOrEqual(t, lag(t, s, 100), quiet)
		reads, opens := s.counts()
		require.Equal(t, 2, opens)
		require.Less(t, reads, 100, "the second is on time, and the record is not read any more")
	})
}

// TestElectionWithLateWatches: one candidate leads all the time although watches are late (F-5).
func TestElectionWithLateWatches(t *testing.T) {
	for name, delay := range map[string]func(time.Time) time.Time{
		"OnTime": promptly, "After1s": ticks(time.Second), "After10s": ticks(10 * time.Second), "After60s": ticks(time.Minute), "Never": never,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				table := memory.NewTable()
				var candidates sync.WaitGroup
				leaderships := make(chan string, 1000)
				for _, id := range []string{"one", "two"} {
					s := newLate(table, delay)
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
						for event := range events {
							if event.Kind == leaderelection.EventWatchFailed {
								t.Errorf("%s: %v", id, event.Err)
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

// scripted is a watch whose reports and end a test determines, and a record that it reads.
type scripted struct {
	*changefeed.Feeds
	reports chan changefeed.Event
	ends    chan error

	mu     sync.Mutex
	opens  int
	reads  int
	record changefeed.Record
	err    error // of a read
}

func newScripted(quiet time.Duration) *scripted {
	s := &scripted{reports: make(chan changefeed.Event), ends: make(chan error)}
	s.Feeds = changefeed.NewFeeds(s.read, s.watch, quiet)
	return s
}

func (s *scripted) read(context.Context) (changefeed.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return s.record, s.err
}

func (s *scripted) watch(ctx context.Context, report func(changefeed.Event)) error {
	s.mu.Lock()
	s.opens++
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
func (s *scripted) set(r changefeed.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record, s.err = r, err
}

// counts returns the number of reads, and of watches that were started.
func (s *scripted) counts() (reads, opens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads, s.opens
}

// requireReads requires that the feed has read the record n times.
func (s *scripted) requireReads(t *testing.T, n int) {
	t.Helper()
	reads, _ := s.counts()
	require.Equal(t, n, reads)
}

// requireOpens requires that the feed has started n watches.
func (s *scripted) requireOpens(t *testing.T, n int) {
	t.Helper()
	_, opens := s.counts()
	require.Equal(t, n, opens)
}

// feedTest runs a test with the feed of a scripted watch in fake time.
func feedTest(t *testing.T, quiet time.Duration, f func(t *testing.T, s *scripted, feed changefeed.Feed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newScripted(quiet)
		defer s.Close()
		feed, err := s.Subscribe(t.Context())
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

// noEvent requires that the feed delivers nothing although everything was handled.
func noEvent(t *testing.T, feed changefeed.Feed) {
	t.Helper()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, err := feed.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func state(seq uint64) changefeed.Record {
	return changefeed.Record{Epoch: "e", Leader: "one", Session: "s", Term: 7, Seq: seq, Version: fmt.Sprint(seq)}
}

// TestFeedDeliversReports: records that the database sends are delivered without a read, once
// and in order.
func TestFeedDeliversReports(t *testing.T) {
	feedTest(t, 0, func(t *testing.T, s *scripted, feed changefeed.Feed) {
		for seq := range uint64(3) {
			e := changefeed.Event{Record: state(seq + 1)}
			s.reports <- e
			require.Equal(t, e, nextEvent(t, feed))
			s.reports <- e
			noEvent(t, feed)
		}
		s.requireReads(t, 0)
	})
}

// TestFeedReadsUnclearReports: a report that does not certainly follow the last event causes a
// read, and the feed delivers the result.
func TestFeedReadsUnclearReports(t *testing.T) {
	other, again := state(9), state(5)
	other.Epoch, again.Version = "another", "another"
	for name, e := range map[string]changefeed.Event{
		"Unknown":     {},
		"OtherEpoch":  {Record: other},
		"Missing":     {Missing: true},
		"Older":       {Record: state(2)},
		"SameSeq":     {Record: again},
		"EndedByHint": {Record: changefeed.Record{Epoch: "e", Leader: "one", Session: "s", Term: 7, Seq: 6, Version: "x", Ended: true}, Hint: true},
		"TermByHint":  {Record: changefeed.Record{Epoch: "e", Leader: "one", Session: "s", Term: 8, Seq: 6, Version: "x"}, Hint: true},
		"SkipByHint":  {Record: state(7), Hint: true},
		"NoneByHint":  {Missing: true, Hint: true},
	} {
		t.Run(name, func(t *testing.T) {
			feedTest(t, 0, func(t *testing.T, s *scripted, feed changefeed.Feed) {
				s.reports <- changefeed.Event{Record: state(5)}
				require.Equal(t, changefeed.Event{Record: state(5)}, nextEvent(t, feed))
				s.set(state(5), nil)
				s.reports <- e
				noEvent(t, feed)
				s.requireReads(t, 1)
				s.set(state(3), nil) // the record was put back to an older state
				s.reports <- e
				require.Equal(t, changefeed.Event{Record: state(3)}, nextEvent(t, feed))
				s.requireReads(t, 2)
			})
		})
	}
}

// TestFeedHint: a hint of the leader's next heartbeat is delivered as a hint without a read, and
// the record that is read afterwards is delivered although the hint has named it.
func TestFeedHint(t *testing.T) {
	feedTest(t, quiet, func(t *testing.T, s *scripted, feed changefeed.Feed) {
		s.set(state(1), nil)
		s.reports <- changefeed.Event{}
		require.Equal(t, changefeed.Event{Record: state(1)}, nextEvent(t, feed))
		hint := changefeed.Event{Record: state(2), Hint: true}
		s.reports <- hint
		require.Equal(t, hint, nextEvent(t, feed))
		s.requireReads(t, 1)
		begin := time.Now()
		require.Equal(t, changefeed.Event{Record: state(1)}, nextEvent(t, feed), "the hint was false")
		require.Equal(t, quiet, time.Since(begin), "the feed reads after the quiet time")
		s.requireReads(t, 2)
	})
}

// TestFeedHintOfOther: a hint that claims anything other than that the leader of the last event has
// written its next heartbeat is not delivered, but causes a read.
func TestFeedHintOfOther(t *testing.T) {
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
			feedTest(t, 0, func(t *testing.T, s *scripted, feed changefeed.Feed) {
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
				noEvent(t, feed)
				s.requireReads(t, 2)
			})
		})
	}
}

// TestFeedProvesHint: a read that confirms a hint is delivered as well, because it is proof.
func TestFeedProvesHint(t *testing.T) {
	feedTest(t, quiet, func(t *testing.T, s *scripted, feed changefeed.Feed) {
		s.set(state(1), nil)
		s.reports <- changefeed.Event{}
		require.Equal(t, changefeed.Event{Record: state(1)}, nextEvent(t, feed))
		s.set(state(2), nil)
		s.reports <- changefeed.Event{Record: state(2), Hint: true}
		require.True(t, nextEvent(t, feed).Hint)
		require.Equal(t, changefeed.Event{Record: state(2)}, nextEvent(t, feed))
		time.Sleep(10 * quiet)
		noEvent(t, feed)
	})
}

// TestFeedHintFirst: a hint before the first event is not delivered.
func TestFeedHintFirst(t *testing.T) {
	feedTest(t, 0, func(t *testing.T, s *scripted, feed changefeed.Feed) {
		s.set(state(1), nil)
		s.reports <- changefeed.Event{Record: state(2), Hint: true}
		require.Equal(t, changefeed.Event{Record: state(1)}, nextEvent(t, feed))
	})
}

// TestFeedKeepsNewest: a reader that is late receives the newest event alone.
func TestFeedKeepsNewest(t *testing.T) {
	feedTest(t, 0, func(t *testing.T, s *scripted, feed changefeed.Feed) {
		for seq := range uint64(100) {
			s.reports <- changefeed.Event{Record: state(seq + 1)}
		}
		synctest.Wait()
		require.EqualValues(t, 100, nextEvent(t, feed).Record.Seq)
		noEvent(t, feed)
	})
}

// TestFeedWatchesAgain: a feed whose watch returns nil watches again immediately. After ErrNoRecord it
// reports that the record is missing, and watches again after a pause.
func TestFeedWatchesAgain(t *testing.T) {
	feedTest(t, quiet, func(t *testing.T, s *scripted, feed changefeed.Feed) {
		begin := time.Now()
		s.ends <- nil
		synctest.Wait()
		s.requireOpens(t, 2)
		require.Zero(t, time.Since(begin))
		s.ends <- fmt.Errorf("no table: %w", changefeed.ErrNoRecord)
		require.Equal(t, changefeed.Event{Missing: true}, nextEvent(t, feed))
		s.requireOpens(t, 2)
		s.set(state(1), nil)
		s.reports <- changefeed.Event{}
		require.Positive(t, time.Since(begin))
		s.requireOpens(t, 3)
		require.Equal(t, changefeed.Event{Record: state(1)}, nextEvent(t, feed))
	})
}

// TestFeedFails: errors of the watch and of reads end the feed, also if there is an unread event.
func TestFeedFails(t *testing.T) {
	failed := errors.New("failed")
	for name, fail := range map[string]func(s *scripted){
		"Watch": func(s *scripted) { s.ends <- failed },
		"Read":  func(s *scripted) { s.set(changefeed.Record{}, failed); s.reports <- changefeed.Event{} },
		"Quiet": func(s *scripted) { s.set(changefeed.Record{}, failed); time.Sleep(quiet) },
	} {
		t.Run(name, func(t *testing.T) {
			feedTest(t, quiet, func(t *testing.T, s *scripted, feed changefeed.Feed) {
				s.reports <- changefeed.Event{Record: state(1)}
				fail(s)
				synctest.Wait()
				_, err := feed.Next(t.Context())
				require.ErrorIs(t, err, failed)
			})
		})
	}
}

// TestFeedReadsLittle: a feed whose watch reports every write promptly reads the record at most
// three times per heartbeat, also if the reports are hints or contain no record.
func TestFeedReadsLittle(t *testing.T) {
	const heartbeat, heartbeats = 5700 * time.Millisecond, 100 // reads after the quiet time are due twice
	for name, report := range map[string]func(changefeed.Record) changefeed.Event{
		"Record": func(r changefeed.Record) changefeed.Event { return changefeed.Event{Record: r} },
		"Hint":   func(r changefeed.Record) changefeed.Event { return changefeed.Event{Record: r, Hint: true} },
		"Zero":   func(changefeed.Record) changefeed.Event { return changefeed.Event{} },
	} {
		t.Run(name, func(t *testing.T) {
			feedTest(t, quiet, func(t *testing.T, s *scripted, feed changefeed.Feed) {
				go func() {
					for {
						if _, err := feed.Next(context.Background()); err != nil {
							return
						}
					}
				}()
				s.set(state(1), nil)
				s.reports <- changefeed.Event{}
				for i := range uint64(heartbeats) {
					time.Sleep(heartbeat)
					s.set(state(i+2), nil)
					s.reports <- report(state(i + 2))
				}
				synctest.Wait()
				reads, opens := s.counts()
				require.LessOrEqual(t, reads, 3*heartbeats+10)
				require.Equal(t, 1, opens, "the watch was replaced")
			})
		})
	}
}

// TestFeedNotEstablished: a watch that reports nothing at first ends the feed.
func TestFeedNotEstablished(t *testing.T) {
	feedTest(t, quiet, func(t *testing.T, s *scripted, feed changefeed.Feed) {
		begin := time.Now()
		_, err := feed.Next(t.Context())
		require.ErrorContains(t, err, "not established")
		require.Equal(t, 10*time.Second, time.Since(begin), "connecting may take longer than the quiet time")
	})
}

// TestCloseDoesNotWaitForStuckWatch: a watch that ignores its context does not block Close for more
// than two seconds, nor Next.
func TestCloseDoesNotWaitForStuckWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		feeds := changefeed.NewFeeds(nil, func(context.Context, func(changefeed.Event)) error {
			<-release
			return nil
		}, 0)
		feed, err := feeds.Subscribe(t.Context())
		require.NoError(t, err)
		begin := time.Now()
		require.NoError(t, feed.Close())
		_, err = feed.Next(t.Context())
		require.ErrorIs(t, err, changefeed.ErrClosed)
		require.NoError(t, feeds.Close())
		require.LessOrEqual(t, time.Since(begin), 4*time.Second)
		close(release)
	})
}

// TestChangesOfFeeds: changes are delivered in order, then the error of the watch.
func TestChangesOfFeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feeds := changefeed.NewFeeds(nil, nil, 0)
		defer feeds.Close()
		failed := errors.New("failed")
		_, err := feeds.Changes(t.Context(), func(context.Context, func(any)) error { return failed })
		require.ErrorIs(t, err, failed)
		c, err := feeds.Changes(t.Context(), func(_ context.Context, report func(any)) error {
			for _, change := range []any{nil, 1, 2} {
				report(change)
			}
			return failed
		})
		require.NoError(t, err)
		for i := range 2 {
			change, err := c.Next(t.Context())
			require.NoError(t, err)
			require.Equal(t, i+1, change)
		}
		_, err = c.Next(t.Context())
		require.ErrorIs(t, err, failed)
		require.NoError(t, c.Close())
		_, err = c.Next(t.Context())
		require.ErrorIs(t, err, changefeed.ErrClosed)

		c, err = feeds.Changes(t.Context(), func(ctx context.Context, report func(any)) error {
			for _, change := range []any{nil, 1, 2} {
				report(change)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		require.NoError(t, err)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = c.Next(done)
		require.ErrorIs(t, err, context.Canceled)
		change, err := c.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, change)
		require.NoError(t, c.Close())
		_, err = c.Next(t.Context())
		require.ErrorIs(t, err, changefeed.ErrClosed, "although a change was not read")
	})
}
