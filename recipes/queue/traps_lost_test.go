package queue

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// losses are what can become of one request of a client.
var losses = map[string]func(srv *zktest.Server, m zktest.Match){
	"answer lost":           func(srv *zktest.Server, m zktest.Match) { srv.After(m, zktest.Cut) },
	"request lost":          func(srv *zktest.Server, m zktest.Match) { srv.Before(m, zktest.Cut) },
	"session moved, done":   func(srv *zktest.Server, m zktest.Match) { srv.After(m, zktest.Fail(zk.ErrSessionMoved)) },
	"session moved, undone": func(srv *zktest.Server, m zktest.Match) { srv.Before(m, zktest.Fail(zk.ErrSessionMoved)) },
}

// TestTrap01_ClaimWithoutAnswer: a claim whose answer is lost is known to be this
// consumer's, and is no orphan that keeps the item from everybody.
func TestTrap01_ClaimWithoutAnswer(t *testing.T) {
	for name, fault := range losses {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				ctx, conn := w.Context(), w.connect()
				q, other := w.newQueue(conn, Config{}), w.queue()
				w.put(q, "one", "two")
				fault(w.srv, only(conn, zktest.OpMulti, 1))
				item := w.take(q, "one")
				require.Equal(t, 1, item.Attempt(), "claimed once")
				_, stat, err := conn.Get(q.claim(item.ID()))
				require.NoError(t, err)
				require.Equal(t, stat.Czxid, item.Token())
				w.take(other, "two")
				require.NoError(t, item.Ack(ctx))
				w.empty(other)
			})
		})
	}
}

// TestTrap05_ReturnWithoutAnswer: the claim is deleted all the same, and that of the
// next consumer is not.
func TestTrap05_ReturnWithoutAnswer(t *testing.T) {
	for name, fault := range losses {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				ctx, conn := w.Context(), w.connect()
				q, other := w.newQueue(conn, Config{}), w.queue()
				w.put(q, "one")
				item := w.take(q, "one")
				taken := make(chan Item, 1)
				// Whoever waits has the item before the first consumer can ask.
				fault(w.srv, only(conn, zktest.OpMulti, 1))
				go func() {
					again, err := other.Take(ctx)
					require.NoError(t, err)
					taken <- again
				}()
				require.NoError(t, item.Return(ctx, nil))
				again := <-taken
				w.pass(2 * timeout)
				require.NoError(t, again.Err())
				_, err := again.Multi()
				require.NoError(t, err, "its claim stands")
				require.Equal(t, 2, again.Attempt())
			})
		})
	}
}

// TestTrap06_CancelledContext: what a call has begun is finished or undone with no
// context of the caller's.
func TestTrap06_CancelledContext(t *testing.T) {
	play(t, func(w *world) {
		conn := w.connect()
		q, other := w.newQueue(conn, Config{}), w.queue()
		w.put(q, "one", "two")
		item, second := w.take(q, "one"), w.take(q, "two")
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		require.ErrorIs(t, item.Ack(ctx), context.Canceled)
		require.NotErrorIs(t, item.Ack(ctx), recipes.ErrUnconfirmed, "nothing was sent")
		require.NoError(t, item.Err())

		ctx, cancel = context.WithCancel(w.Context())
		w.srv.Before(only(conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
			cancel()
			time.Sleep(time.Millisecond)
			return zktest.Pass(r)
		})
		err := item.Ack(ctx)
		require.ErrorIs(t, err, recipes.ErrUnconfirmed)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, item.Ack(w.Context()), "it went on")
		require.Len(t, w.left("/jobs"), 1)

		ctx, cancel = context.WithCancel(w.Context())
		w.srv.Before(only(conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
			cancel()
			return zktest.Cut(r)
		})
		require.ErrorIs(t, second.Return(ctx, nil), recipes.ErrUnconfirmed)
		again, err := other.Take(w.Context())
		require.NoError(t, err)
		require.Equal(t, 2, again.Attempt())

		// Close with a context that is over closes all the same.
		require.ErrorIs(t, q.Close(ctx), recipes.ErrUnconfirmed)
		w.pass(time.Second)
		require.NoError(t, q.Close(ctx), "it is done by now")
	})
}

// TestTrap07_PutWithoutAnswer: exactly one item, also where it was consumed before
// the producer could look for it.
func TestTrap07_PutWithoutAnswer(t *testing.T) {
	for name, fault := range losses {
		for _, quick := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " ", quick), func(t *testing.T) {
				play(t, func(w *world) {
					ctx, conn := w.Context(), w.connect()
					q, other := w.newQueue(conn, Config{}), w.queue()
					w.put(q, "zero")
					require.NoError(t, w.take(other, "zero").Ack(ctx))
					consumed := 0
					consume, cancel := context.WithCancel(ctx)
					if quick {
						items := other.Consume(consume)
						go func() {
							for item := range items {
								consumed++
								require.Equal(t, "one", string(item.Data()))
								require.NoError(t, item.Ack(ctx))
							}
						}()
					}
					fault(w.srv, only(conn, zktest.OpMulti, 1))
					require.NoError(t, q.Put(ctx, []byte("one")))
					w.pass(time.Second)
					cancel()
					w.pass(time.Second)
					if !quick {
						w.take(other, "one")
						consumed++
					}
					w.empty(other)
					require.Equal(t, 1, consumed)
				})
			})
		}
	}
}

// TestTrap07_RequeueWithoutAnswer: a dead letter becomes one item.
func TestTrap07_RequeueWithoutAnswer(t *testing.T) {
	for name, fault := range losses {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				ctx, conn := w.Context(), w.connect()
				q := w.newQueue(conn, Config{MaxAttempts: 1})
				w.put(q, "one")
				item := w.take(q, "one")
				fault(w.srv, only(conn, zktest.OpMulti, 1))
				require.NoError(t, item.Return(ctx, nil), "moved once")
				letters, err := q.DeadLetters(ctx)
				require.NoError(t, err)
				require.Len(t, letters, 1)
				require.Empty(t, w.left("/jobs"))
				fault(w.srv, only(conn, zktest.OpMulti, 1))
				require.NoError(t, q.Requeue(ctx, letters[0]))
				require.Len(t, w.left("/jobs"), 1)
				require.Empty(t, w.left("/jobs-dead"))
				w.take(q, "one")
			})
		})
	}
}

// TestTrap08_AckWithoutAnswer: an item that is gone is this consumer's doing, and
// not somebody's who was quicker.
func TestTrap08_AckWithoutAnswer(t *testing.T) {
	for name, fault := range losses {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				ctx, conn := w.Context(), w.connect()
				q, other := w.newQueue(conn, Config{}), w.queue()
				w.put(q, "one", "two")
				item := w.take(q, "one")
				fault(w.srv, only(conn, zktest.OpMulti, 1))
				written := &zk.CreateRequest{Path: "/done-", Acl: q.acl, Flags: zk.FlagSequence}
				require.NoError(t, item.Ack(ctx, written))
				require.ErrorIs(t, item.Err(), ErrSettled)
				require.Equal(t, 1, strings.Count(w.srv.Tree(), "done-"))
				w.take(other, "two")
				w.empty(other)
			})
		})
	}
}

// TestTrap08_AckWithoutAnswerAndSession: the session ends before the consumer can
// ask: where the item is gone it does not know by whom, and says so.
func TestTrap08_AckWithoutAnswerAndSession(t *testing.T) {
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprint(applied), func(t *testing.T) {
			play(t, func(w *world) {
				ctx, conn := w.Context(), w.connect()
				q, other := w.newQueue(conn, Config{}), w.queue()
				w.put(q, "one")
				item := w.take(q, "one")
				set := w.srv.Before
				if applied {
					set = w.srv.After
				}
				set(only(conn, zktest.OpMulti, 1), func(r *zktest.Request) zktest.Verdict {
					_ = w.srv.ExpireSession(r.Session)
					return zktest.Cut(r)
				})
				want := ErrClaimLost // for the item is there
				if applied {
					want = recipes.ErrUnconfirmed
				}
				require.ErrorIs(t, item.Ack(ctx), want)
				require.ErrorIs(t, item.Ack(ctx), want, "again")
				require.ErrorIs(t, item.Return(ctx, nil), want)
				if applied {
					w.empty(other)
				} else {
					w.take(other, "one")
				}
			})
		})
	}
}

// TestTrap10_SessionMovedInATransaction is in the faults of the traps above; here
// it goes on for a while.
func TestTrap10_SessionMovedInATransaction(t *testing.T) {
	play(t, func(w *world) {
		ctx, conn := w.Context(), w.connect()
		q := w.newQueue(conn, Config{})
		for i := range 5 {
			for k := 1; k <= 3; k++ {
				w.srv.After(only(conn, zktest.OpMulti, k), zktest.Fail(zk.ErrSessionMoved))
			}
			w.put(q, fmt.Sprint(i))
			require.NoError(t, w.take(q, fmt.Sprint(i)).Ack(ctx))
		}
		w.empty(q)
		require.Empty(t, w.left("/jobs"))
	})
}

// TestBusyServer: one that refuses what it cannot do at the moment is not asked again
// and again without a pause.
func TestBusyServer(t *testing.T) {
	for name, registered := range map[string]bool{"first write": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				conn := w.connect()
				q := w.newQueue(conn, Config{})
				if registered {
					w.put(q, "zero")
				}
				begin, tries := time.Now(), 0
				w.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: conn.SessionID()}, func(r *zktest.Request) zktest.Verdict {
					if tries++; time.Since(begin) < time.Second && tries < 1000 {
						return zktest.Fail(zktest.Code(-127))(r) // throttled
					}
					return zktest.Pass(r)
				})
				w.put(q, "one")
				require.Less(t, tries, 50)
			})
		})
	}
}
