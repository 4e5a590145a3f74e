package cursor_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/cursor"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
)

const quiet = 2 * time.Second

// late is a store whose cursors tell of a write when the time has come that delay returns
// for the time of the write; never, if that is zero.
type late struct {
	changefeed.Store
	life  *cursor.Life
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
	source := &cursor.Source{Life: l.life, Read: l.Read, Quiet: quiet, ReadsFirst: true, Open: l.open}
	return source.Subscribe(ctx)
}

func (l *late) open(ctx context.Context) (cursor.Cursor[cursor.Told], error) {
	l.mu.Lock()
	l.opens++
	l.mu.Unlock()
	feed, err := l.Store.Subscribe(ctx)
	if err != nil {
		return nil, err
	}
	c := &lateCursor{ctx: ctx, feed: feed, store: l, events: make(chan changefeed.Event, 10000)}
	c.wg.Go(c.listen)
	return c, nil
}

func (l *late) Close() error {
	l.life.Close()
	return l.Store.Close()
}

type lateCursor struct {
	ctx    context.Context
	feed   changefeed.Feed
	store  *late
	events chan changefeed.Event
	wg     sync.WaitGroup
}

func (c *lateCursor) listen() {
	defer close(c.events)
	for {
		e, err := c.feed.Next(c.ctx)
		if err != nil {
			return
		}
		c.events <- e
	}
}

func (c *lateCursor) Next() (cursor.Told, error) {
	select {
	case e := <-c.events:
		at := c.store.delay(e.Record.Time)
		wait := time.Until(at)
		if at.IsZero() {
			wait = 1000 * time.Hour
		}
		select {
		case <-time.After(wait):
			return cursor.Told{Event: e, Doubtful: true}, nil
		case <-c.ctx.Done():
		}
	case <-c.ctx.Done():
	}
	return cursor.Told{}, c.ctx.Err()
}

func (c *lateCursor) Close() {
	_ = c.feed.Close()
	c.wg.Wait()
}

func newLate(table *memory.Table, delay func(time.Time) time.Time) *late {
	return &late{Store: table.Store("election"), life: cursor.NewLife(context.Background()), delay: delay}
}

// ticks tells of writes at the end of each period, as a sharded cluster with an idle shard.
func ticks(period time.Duration) func(time.Time) time.Time {
	return func(written time.Time) time.Time { return written.Truncate(period).Add(period) }
}

func promptly(written time.Time) time.Time { return written.Add(time.Millisecond) }

func never(time.Time) time.Time { return time.Time{} }

// lag writes once a second, and returns how late the feed tells of a write at most.
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

// TestLate: the feed of a cursor that is late tells of writes soon, and does not end; that of
// one which is on time reads nothing once it has told of a write.
func TestLate(t *testing.T) {
	for _, c := range []struct {
		name   string
		delay  func(time.Time) time.Time
		lag    time.Duration
		reads  int
		cursor int // at most
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
				require.LessOrEqual(t, opens, c.cursor)
			})
		})
	}
}

// TestReplacedCursor: a cursor that has become silent is replaced by another.
func TestReplacedCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		silent := func(written time.Time) time.Time {
			if since := written.Sub(begin); since > 10*time.Second && since < 12*time.Second {
				return time.Time{} // the cursor that meets this tells nothing any more
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

// TestLateElection: one candidate leads all the time where the cursors are late (F-5).
func TestLateElection(t *testing.T) {
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
						for n := range events {
							if n.Kind == leaderelection.EventWatchFailed {
								t.Errorf("%s: %v", id, n.Err)
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
