package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/barrier"
	"github.com/go-leaderelection/leaderelection/recipes/cache"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// eventLog collects events.
type eventLog struct {
	mu  sync.Mutex
	all []event.Event
}

func (l *eventLog) add(e event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

// takeEvents returns a text for each event since its last call: the kind, the duration in seconds, and the reason,
// count and error if there are any.
func (l *eventLog) takeEvents() (found []string) {
	bubble.Advance(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.all {
		text := fmt.Sprintf("%v %.0f", e.Kind, e.Duration.Seconds())
		if e.Reason != "" {
			text += " " + e.Reason
		}
		if e.Count > 0 {
			text += fmt.Sprintf(" count %d", e.Count)
		}
		if e.Err != nil {
			text += fmt.Sprintf(": %v", e.Err)
		}
		found = append(found, text)
	}
	l.all = nil
	return found
}

// TestEvents_LocksReportHolds checks that every kind of lock emits an event when a caller acquires it, when the
// caller releases the hold, and when the hold is lost.
func TestEvents_LocksReportHolds(t *testing.T) {
	type acquire func(ctx context.Context) (*lock.Hold, error)
	for name, open := range map[string]func(conn *zk.Conn, options ...lock.Option) acquire{
		"mutex": func(conn *zk.Conn, options ...lock.Option) acquire {
			m, err := lock.NewMutex(conn, "/app/lock", options...)
			require.NoError(t, err)
			return m.Lock
		},
		"single": func(conn *zk.Conn, options ...lock.Option) acquire {
			s, err := lock.NewSingle(conn, "/app/lock", nil, options...)
			require.NoError(t, err)
			return s.Lock
		},
		"waiter": func(conn *zk.Conn, options ...lock.Option) acquire {
			m, err := lock.NewMutex(conn, "/app/lock", options...)
			require.NoError(t, err)
			return func(ctx context.Context) (*lock.Hold, error) { return m.Join(ctx).Wait() }
		},
		"write lock": func(conn *zk.Conn, options ...lock.Option) acquire {
			m, err := lock.NewRWMutex(conn, "/app/lock", options...)
			require.NoError(t, err)
			return func(ctx context.Context) (*lock.Hold, error) {
				h, err := m.Lock(ctx)
				if err != nil {
					return nil, err
				}
				return h.Hold, nil
			}
		},
		"semaphore": func(conn *zk.Conn, options ...lock.Option) acquire {
			s, err := lock.NewSemaphore(conn, "/app/lock", 1, options...)
			require.NoError(t, err)
			return func(ctx context.Context) (*lock.Hold, error) { return s.Acquire(ctx, 1) }
		},
		"semaphore of Curator": func(conn *zk.Conn, options ...lock.Option) acquire {
			s, err := lock.NewSemaphore(conn, "/app/lock", 1, append(options, lock.WithCuratorLayout())...)
			require.NoError(t, err)
			return func(ctx context.Context) (*lock.Hold, error) { return s.Acquire(ctx, 1) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(h *bubble.Test) {
				var log eventLog
				conn := h.Connect()
				first, err := open(h.Connect())(h.Context())
				require.NoError(h, err)
				held := bubble.Async(func() *lock.Hold {
					hold, err := open(conn, recipes.WithEvents(log.add), recipes.WithSessionTimeout(bubble.SessionTimeout))(h.Context())
					require.NoError(h, err)
					return hold
				})
				bubble.Advance(3 * time.Second)
				require.Empty(h, log.takeEvents())
				require.NoError(h, first.Release())
				hold := <-held
				e := func() event.Event { bubble.Advance(0); log.mu.Lock(); defer log.mu.Unlock(); return log.all[0] }()
				require.Equal(h, "lock", e.Recipe)
				require.Equal(h, "/app/lock", e.Path)
				require.Equal(h, hold.Path(), e.Subject)
				require.Equal(h, hold.Token(), e.Token)
				require.Equal(h, []string{"acquired 3"}, log.takeEvents())
				bubble.Advance(7 * time.Second)
				require.NoError(h, hold.Release())
				require.Equal(h, []string{"released 7"}, log.takeEvents())

				hold, err = open(conn, recipes.WithEvents(log.add))(h.Context())
				require.NoError(h, err)
				bubble.Advance(time.Second)
				require.NoError(h, h.Server.ExpireSession(conn.SessionID()))
				<-hold.Done()
				found := log.takeEvents()
				require.Len(h, found, 2)
				require.Contains(h, found[1], "lost 1: ")
				bubble.Advance(time.Minute) // wait until the contender has left
			})
		})
	}
}

// TestEvents_QueueReportsItems checks the events of a queue for items that a consumer acknowledges, returns, fails
// too often, loses, and leaves when its handler ends.
func TestEvents_QueueReportsItems(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		var log eventLog
		conn := h.Connect()
		q, err := queue.New(conn, "/app/jobs", queue.WithMaxAttempts(2), recipes.WithEvents(log.add), recipes.WithSessionTimeout(bubble.SessionTimeout))
		require.NoError(h, err)
		h.Cleanup(func() { require.NoError(h, bubble.Repeated(q.Close)) })
		put := func(payload string) {
			_, err := q.Put(h.Context(), []byte(payload))
			require.NoError(h, err)
		}
		take := func() *queue.Item {
			item, err := q.Take(h.Context())
			require.NoError(h, err)
			return item
		}
		put("a")
		bubble.Advance(5 * time.Second)
		item := take()
		bubble.Advance(2 * time.Second)
		require.NoError(h, item.Ack())
		require.Equal(h, []string{"opened 0", "listed 0 count 1", "acquired 5", "released 2"}, log.takeEvents())

		failed := errors.New("failed")
		put("b")
		require.NoError(h, take().Return(queue.Later(time.Second, failed)))
		item = take()
		bubble.Advance(time.Second)
		require.NoError(h, item.Return(failed))
		require.Subset(h, log.takeEvents(), []string{"acquired 0", "returned 0: failed", "acquired 1", "rejected 1: failed"})

		put("c")
		lost := take()
		require.NoError(h, h.Server.ExpireSession(conn.SessionID()))
		<-lost.Done()
		found := log.takeEvents()
		require.Contains(h, found[len(found)-1], "lost ")

		// Start a handler and stop it, so that the attempt does not count.
		ctx, stop := context.WithCancel(h.Context())
		done := bubble.Async(func() error {
			return q.Handle(ctx, func(ctx context.Context, _ *queue.Item) error { <-ctx.Done(); return ctx.Err() })
		})
		bubble.Advance(time.Minute)
		stop()
		require.NoError(h, <-done)
		found = log.takeEvents()
		require.Contains(h, found[len(found)-1], "returned ")
		require.NoError(h, bubble.Repeated(q.Close))
		require.Equal(h, []string{"ended 0: recipes: closed"}, log.takeEvents())
	})
}

// TestQueue_EmitsEndedOnlyAfterOpened checks that a queue that no consumer has read emits no events when it is closed,
// and that a queue that has emitted Opened emits Ended exactly once when its connection is closed.
func TestQueue_EmitsEndedOnlyAfterOpened(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		var log eventLog
		conn := h.Connect()
		q, err := queue.New(conn, "/jobs", recipes.WithEvents(log.add))
		require.NoError(h, err)
		require.NoError(h, bubble.Repeated(q.Close))
		require.Empty(h, log.takeEvents())

		q, err = queue.New(conn, "/jobs", recipes.WithEvents(log.add))
		require.NoError(h, err)
		_, err = q.TryTake(h.Context())
		require.ErrorIs(h, err, queue.ErrEmpty)
		require.Subset(h, []string{"opened 0", "listed 0"}, log.takeEvents())
		taken := bubble.Async(func() error { _, err := q.Take(h.Context()); return err })
		bubble.Advance(time.Second)
		conn.Close()
		require.ErrorIs(h, <-taken, recipes.ErrConnClosed)
		found := log.takeEvents()
		require.Contains(h, found[len(found)-1], "ended 0: ")
		require.NoError(h, q.Close())
		require.Empty(h, log.takeEvents())
	})
}

// TestQueue_EmitsOneEventForItemLostDuringCompletion checks that a queue emits exactly one event, Lost, if the
// session or the lease ends while a consumer acknowledges or returns the item.
func TestQueue_EmitsOneEventForItemLostDuringCompletion(t *testing.T) {
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		complete func(*queue.Item) error
		fault    func(h *bubble.Test, session int64)
	}{
		"return, session": {
			func(i *queue.Item) error { return i.Return(failed) },
			func(h *bubble.Test, session int64) {
				h.Server.Before(zktest.Match{Op: zktest.OpMulti, Session: session, Nth: 1}, func(r *zktest.Request) zktest.Verdict {
					require.NoError(h, h.Server.ExpireSession(session))
					return zktest.Pass(r)
				})
			},
		},
		"acknowledge, lease": {
			func(i *queue.Item) error { return i.Ack() },
			func(h *bubble.Test, session int64) {
				h.Server.After(zktest.Match{Op: zktest.OpMulti, Session: session, Nth: 1}, func(r *zktest.Request) zktest.Verdict {
					time.Sleep(bubble.SessionTimeout * 9 / 10)
					return zktest.Pass(r)
				})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(h *bubble.Test) {
				var log eventLog
				conn := h.Connect()
				q, err := queue.New(conn, "/jobs", queue.WithMaxAttempts(1), recipes.WithEvents(log.add), recipes.WithSessionTimeout(bubble.SessionTimeout))
				require.NoError(h, err)
				_, err = q.Put(h.Context(), []byte("a"))
				require.NoError(h, err)
				item, err := q.Take(h.Context())
				require.NoError(h, err)
				require.Len(h, log.takeEvents(), 3)
				test.fault(h, conn.SessionID())
				_ = test.complete(item)
				bubble.Advance(time.Minute)
				found := log.takeEvents()
				require.Len(h, found, 1)
				require.Contains(h, found[0], "lost ")
				require.NoError(h, bubble.Repeated(q.Close))
			})
		})
	}
}

// TestQueue_EmitsRejectedForInvalidItem checks that an item whose data is not in the format of the queue becomes a
// dead letter with the event Rejected, although no consumer receives the item.
func TestQueue_EmitsRejectedForInvalidItem(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		var log eventLog
		conn := h.Connect()
		q, err := queue.New(conn, "/jobs", recipes.WithEvents(log.add))
		require.NoError(h, err)
		require.NoError(h, q.Create(h.Context()))
		_, err = conn.Create("/jobs/queue-", []byte("x"), zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(h, err)
		_, err = q.TryTake(h.Context())
		require.ErrorIs(h, err, queue.ErrEmpty)
		bubble.Advance(0)
		log.mu.Lock()
		rejected := 0
		for _, e := range log.all {
			if e.Kind == event.Rejected {
				rejected++
				require.Zero(h, e.Token)
				require.Equal(h, "queue-0000000000", e.Subject)
			}
		}
		log.mu.Unlock()
		require.Equal(h, 1, rejected)
		require.NoError(h, bubble.Repeated(q.Close))
	})
}

// TestEvents_CacheReportsFreshness checks that a cache emits Fresh when it is filled and after a reconnect, and
// Stale when the connection breaks.
func TestEvents_CacheReportsFreshness(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		var log eventLog
		conn := h.Connect()
		for _, path := range []string{"/app", "/app/a", "/app/b"} {
			_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(h, err)
		}
		c, err := cache.New(conn, "/app", cache.Subtree, recipes.WithEvents(log.add))
		require.NoError(h, err)
		require.Equal(h, []string{"opened 0", "fresh 0 count 3"}, log.takeEvents())
		h.Server.DropConnections(conn.SessionID())
		bubble.Advance(3 * time.Second)
		found := log.takeEvents()
		require.Len(h, found, 2)
		require.Equal(h, "stale 0", found[0])
		require.Regexp(h, "^fresh [12] count 3$", found[1])
		require.NoError(h, c.Close())
		require.Equal(h, []string{"ended 0: recipes: closed"}, log.takeEvents())
	})
}

// TestBarrier_EmitsWaitingAndPassed checks that a call of Wait emits Waiting if the barrier is set, and Passed
// with the duration and the error when the call returns.
func TestBarrier_EmitsWaitingAndPassed(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		var log eventLog
		b, err := barrier.New(h.Connect(), "/gate", recipes.WithEvents(log.add))
		require.NoError(h, err)
		require.NoError(h, b.Set(h.Context()))
		passed := bubble.Async(func() error { return b.Wait(h.Context()) })
		require.Equal(h, []string{"waiting 0"}, log.takeEvents())
		bubble.Advance(3 * time.Second)
		require.NoError(h, b.Remove(h.Context()))
		require.NoError(h, <-passed)
		require.Equal(h, []string{"passed 3"}, log.takeEvents())

		require.NoError(h, b.Set(h.Context()))
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		require.ErrorIs(h, b.Wait(ctx), context.DeadlineExceeded)
		require.Equal(h, []string{"waiting 0", "passed 1: wait at barrier /gate: context deadline exceeded"}, log.takeEvents())
	})
}

// TestDouble_EmitsEventsOfRound checks that a double barrier emits Waiting and Passed when a participant enters,
// and Released or Lost when the participant leaves or has lost its session.
func TestDouble_EmitsEventsOfRound(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		var log eventLog
		enter := func(conn *zk.Conn, options ...barrier.Option) <-chan *barrier.Round {
			d, err := barrier.NewDouble(conn, "/round", 2, append(options, recipes.WithSessionTimeout(bubble.SessionTimeout))...)
			require.NoError(h, err)
			return bubble.Async(func() *barrier.Round {
				r, err := d.Enter(h.Context())
				require.NoError(h, err)
				return r
			})
		}
		conn, other := h.Connect(), h.Connect()
		for _, expire := range []bool{false, true} {
			first := enter(conn, recipes.WithEvents(log.add))
			bubble.Advance(2 * time.Second)
			second := <-enter(other)
			round := <-first
			e := func() event.Event { bubble.Advance(0); log.mu.Lock(); defer log.mu.Unlock(); return log.all[1] }()
			require.Equal(h, round.Token(), e.Token)
			require.Contains(h, e.Subject, "/round/")
			require.Equal(h, []string{"waiting 0", "passed 2"}, log.takeEvents())
			bubble.Advance(time.Second)
			if expire {
				require.NoError(h, h.Server.ExpireSession(conn.SessionID()))
				<-round.Done()
			}
			left := bubble.Async(func() error { return round.Leave(h.Context()) })
			require.NoError(h, second.Leave(h.Context()))
			require.NoError(h, <-left)
			found := log.takeEvents()
			require.Len(h, found, 1)
			if expire {
				require.Contains(h, found[0], "lost 1: ")
			} else {
				require.Equal(h, "released 1", found[0])
			}
		}
	})
}

// TestWithEvents_RejectsNil checks that a constructor returns ErrInvalid for WithEvents(nil).
func TestWithEvents_RejectsNil(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		_, err := lock.NewMutex(h.Connect(), "/app/lock", recipes.WithEvents(nil))
		require.ErrorIs(h, err, recipes.ErrInvalid)
	})
}
