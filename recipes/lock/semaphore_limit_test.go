package lock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// setLimit stores a limit and waits until it has taken effect.
func (w *harness) setLimit(limit int) {
	w.Helper()
	require.NoError(w, w.semaphore(w.operator, 99).SetLimit(w.Context(), limit))
	synctest.Wait()
}

func (w *harness) limit() int {
	w.Helper()
	limit, err := w.semaphore(w.operator, 99).Limit(w.Context())
	require.NoError(w, err)
	return limit
}

// The stored limit has precedence over the limits of constructors, and remains when all contenders
// have left.
func TestSemaphoreLimit_Stored(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		require.Equal(w, 99, w.limit(), "no limit is stored yet")
		w.setLimit(2)
		require.Equal(w, 2, w.limit())
		a, b, c := w.contend(5, 1), w.contend(5, 1), w.contend(5, 1)
		w.holding(a, b)
		c.waits()
		for _, x := range []*call{a, b, c} {
			x.release()
		}
		w.clean()
		w.srv.Sweep()
		require.Equal(w, 2, w.limit())
		data, _, err := w.operator.Get(semPath)
		require.NoError(w, err)
		require.Equal(w, "2", string(data))
		w.setLimit(3)
		w.setLimit(3)
		require.Equal(w, 3, w.limit())
		children, _, err := w.operator.Children(semPath)
		require.NoError(w, err)
		require.Len(w, children, 2, "the limit and the register of the operator: %v", children)
	})
}

// Without a stored limit, ZooKeeper can remove the znode of the semaphore.
func TestSemaphoreLimit_ZnodeIsRemovedIfNotStored(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		c := w.contend(1, 1)
		require.Zero(w, w.srv.Sweep())
		c.release()
		require.Equal(w, 1, w.srv.Sweep())
		w.contend(1, 1).release()
	})
}

// When the limit is raised, the waiting contenders that are within the new limit are admitted
// immediately.
func TestSemaphoreLimit_Raised(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		var all []*call
		for range 6 {
			all = append(all, w.contend(1, 1))
		}
		w.setLimit(4)
		w.holding(all[:4]...)
		w.waiting(all[4:]...)
		w.setLimit(5)
		w.holding(all[:5]...)
		w.waiting(all[5:]...)
		w.setLimit(50)
		w.holding(all...)
		for _, c := range all {
			c.release()
		}
		w.clean()
	})
}

// A lower limit revokes no lease, and no contender is admitted before the leases are within it.
func TestSemaphoreLimit_Lowered(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		var all []*call
		for range 7 {
			all = append(all, w.contend(4, 1))
		}
		w.setLimit(2)
		w.holding(all[:4]...)
		for i, c := range []*call{all[1], all[3]} {
			c.release()
			w.waiting(all[4:]...)
			require.Len(w, w.leases(), 6-i)
		}
		all[0].release()
		w.holding(all[2], all[4])
		w.waiting(all[5:]...)
		all[2].release()
		all[4].release()
		w.holding(all[5:]...)
		all[5].release()
		all[6].release()
		w.clean()
	})
}

// A new contender joins behind holders that were admitted under a higher limit, when they had no
// follower to notify. The last of them stays, and the departure of the others admits it.
func TestSemaphoreLimit_ContenderJoinsAfterLowering(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		var all []*call
		for range 4 {
			all = append(all, w.contend(4, 1))
		}
		w.setLimit(2)
		late, later := w.contend(4, 1), w.contend(4, 1)
		all[0].release()
		all[1].release()
		w.waiting(late, later)
		all[2].release()
		w.holding(all[3], late)
		later.waits()
		late.release()
		w.holding(all[3], later)
		all[3].release()
		later.release()
		w.clean()
	})
}

// If the limit falls below the request of a waiting contender, Acquire returns an error,
// immediately if the contender is the first that waits, and later contenders are admitted.
func TestSemaphoreLimit_FallsBelowRequest(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		holder := w.contend(4, 2)
		first, small, second := w.contend(4, 3), w.contend(4, 1), w.contend(4, 3)
		w.waiting(first, small, second)
		w.setLimit(2)
		first.fails(ErrOverLimit)
		w.waiting(small, second)
		holder.release()
		small.holds()
		second.fails(ErrOverLimit)
		last := w.contend(4, 1)
		small.release()
		last.release()
		w.clean()
	})
}

// The limit is changed while contenders join and leave.
func TestSemaphoreLimit_ChangesWhileInUse(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		served := make(chan struct{}, 200)
		for i := range 20 {
			s := w.semaphore(w.connect(), 3)
			go func() {
				for range 10 {
					h, err := s.Acquire(w.Context(), 1+i%2)
					require.NoError(w, err)
					time.Sleep(time.Duration(1+i%7) * 10 * time.Millisecond)
					require.NoError(w, h.Err())
					require.NoError(w, h.Release())
					served <- struct{}{}
				}
			}()
		}
		for i := range 30 {
			w.setLimit(2 + i*7%5)
			w.pass(17 * time.Millisecond)
		}
		for len(served) < 200 {
			w.pass(time.Second)
			require.Less(w, time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), 10*time.Minute, "%d served\n%s", len(served), w.srv.Tree())
		}
		w.clean()
	})
}

// Two clients set the limit concurrently: one of the changes is applied after the other.
func TestSemaphoreLimit_SetConcurrently(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		other := w.semaphore(w.connect(), 1)
		race := w.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: w.operator.SessionID(), Path: semPath, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.NoError(w, other.SetLimit(w.Context(), 7))
			return zktest.Pass(q)
		})
		w.setLimit(5)
		w.ran(race)
		require.Equal(w, 5, w.limit(), "it was set last")
		children, _, err := w.operator.Children(semPath)
		require.NoError(w, err)
		require.Len(w, children, 3, "the limit and two registers: %v", children)
	})
}

// If the reply to SetLimit is lost, the change is applied only once, and does not overwrite a
// limit that another client sets in the meantime.
func TestTrap07_SemaphoreSetLimitReplyLost(t *testing.T) {
	for _, applied := range []bool{true, false} {
		runSemaphoreTest(t, func(w *harness) {
			other := w.semaphore(w.connect(), 1)
			set, match := w.srv.Before, zktest.Match{Op: zktest.OpMulti, Session: w.operator.SessionID(), Path: semPath, Nth: 1}
			if applied {
				set = w.srv.After
			}
			w.setLimit(2)
			lost := set(match, func(q *zktest.Request) zktest.Verdict {
				require.NoError(w, other.SetLimit(w.Context(), 7))
				return zktest.Cut(q)
			})
			w.setLimit(5)
			w.ran(lost)
			want := 5 // it is applied after the other change
			if applied {
				want = 7 // it is applied before the other change
			}
			require.Equal(w, want, w.limit())
		})
	}
}

func TestSemaphoreLimit_SetUnconfirmed(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		w.setLimit(2)
		w.srv.Blackhole(zktest.ToClient, w.operator.SessionID())
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		// The listing is not answered either, so no change was sent yet.
		require.ErrorIs(w, w.semaphore(w.operator, 1).SetLimit(ctx, 3), context.DeadlineExceeded)
		w.srv.Heal()
		w.pass(timeout)
		require.Equal(w, 2, w.limit())
		w.srv.Before(zktest.Match{Op: zktest.OpMulti, Path: semPath, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.srv.Blackhole(zktest.ToClient, w.operator.SessionID())
			return zktest.Pass(q)
		})
		ctx, cancel = context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		err := w.semaphore(w.operator, 1).SetLimit(ctx, 3)
		require.ErrorIs(w, err, recipes.ErrUnconfirmed)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		w.srv.Heal()
		w.pass(timeout)
		require.Equal(w, 3, w.limit())
	})
}

// Limit must not return the earlier limit of a server that lags behind.
func TestSemaphoreLimit_NotOlderThanCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ensemble := zktest.StartEnsemble(t, 3)
		connect := func(server int) *zk.Conn { return bubble.ConnectFrom(t, ensemble, server, timeout) }
		first, err := NewSemaphore(connect(0), semPath, 1, semOptions(nil)...)
		require.NoError(t, err)
		second, err := NewSemaphore(connect(1), semPath, 1, semOptions(nil)...)
		require.NoError(t, err)
		require.NoError(t, first.SetLimit(t.Context(), 2))
		ensemble.Server(1).Partition()
		require.NoError(t, first.SetLimit(t.Context(), 3))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = second.Limit(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		ensemble.Server(1).Heal()
		limit, err := second.Limit(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, limit)
	})
}

// Other children and data that an operator has written are not taken for a limit.
func TestSemaphoreLimit_UnrelatedChildrenAndData(t *testing.T) {
	runSemaphoreTest(t, func(w *harness) {
		a := w.contend(1, 1)
		for _, name := range []string{"limit", "limit-9", "limit-x-0000000001", "limit-0-0000000001", "limit-09-0000000001", "limit--9-0000000001", "limit-9-0000000001x"} {
			_, err := w.operator.Create(semPath+"/"+name, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
		}
		_, err := w.operator.Set(semPath, []byte("9"), -1)
		require.NoError(w, err)
		b := w.contend(1, 1)
		a.holds()
		b.waits()
		a.release()
		b.release()
	})
}
