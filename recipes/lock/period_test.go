package lock

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const period = time.Hour

// runPeriods runs f in a bubble with one server. open returns a Period that uses a connection; all Periods have
// the same path.
func runPeriods(t *testing.T, f func(t *testing.T, srv *zktest.Server, open func(*zk.Conn) *Period)) {
	synctest.Test(t, func(t *testing.T) {
		f(t, zktest.Start(t), func(conn *zk.Conn) *Period {
			p, err := NewPeriod(conn, "/hourly", period, recipes.WithSessionTimeout(timeout))
			require.NoError(t, err)
			return p
		})
	})
}

// TestPeriod_GrantsOneHoldPerPeriod checks that one hold begins in each period, even if the holder crashes, and
// that Next waits for the next period.
func TestPeriod_GrantsOneHoldPerPeriod(t *testing.T) {
	runPeriods(t, func(t *testing.T, srv *zktest.Server, open func(*zk.Conn) *Period) {
		ctx, conn := t.Context(), bubble.Connect(t, srv, timeout)
		p, other := open(conn), open(bubble.Connect(t, srv, timeout))
		h, err := p.Try(ctx)
		require.NoError(t, err)
		_, err = other.Try(ctx)
		require.ErrorIs(t, err, ErrHeld)
		require.NoError(t, h.Release())
		_, err = other.Try(ctx)
		require.ErrorIs(t, err, ErrEarly)

		time.Sleep(period - time.Minute)
		_, err = p.Try(ctx)
		require.ErrorIs(t, err, ErrEarly)
		time.Sleep(time.Minute)
		h, err = p.Try(ctx)
		require.NoError(t, err)
		require.NoError(t, srv.ExpireSession(conn.SessionID())) // the job crashes
		<-h.Done()
		time.Sleep(10 * time.Minute)
		_, err = other.Try(ctx)
		require.ErrorIs(t, err, ErrEarly)
		begin := time.Now()
		h, err = other.Next(ctx)
		require.NoError(t, err)
		require.InDelta(t, 50*time.Minute, time.Since(begin), float64(time.Minute))
		require.NoError(t, h.Release())
	})
}

// TestPeriod_LastReturnsStartOfLastHold checks that Last returns when the last hold began, in any process, and
// the zero time before the first hold. If another client has written other data, Last returns ErrInvalid.
func TestPeriod_LastReturnsStartOfLastHold(t *testing.T) {
	runPeriods(t, func(t *testing.T, srv *zktest.Server, open func(*zk.Conn) *Period) {
		ctx, conn := t.Context(), bubble.Connect(t, srv, timeout)
		p, other := open(conn), open(bubble.Connect(t, srv, timeout))
		last, err := other.Last(ctx)
		require.NoError(t, err)
		require.Zero(t, last)
		for range 2 {
			begun := time.Now()
			h, err := p.Next(ctx)
			require.NoError(t, err)
			require.NoError(t, h.Release())
			last, err = other.Last(ctx)
			require.NoError(t, err)
			require.WithinRange(t, last, begun.Add(-time.Second), time.Now())
			time.Sleep(period)
		}
		// A client that has crashed before its first hold leaves the znode in this state.
		_, err = conn.Set("/hourly/period", []byte("0"), -1)
		require.NoError(t, err)
		last, err = other.Last(ctx)
		require.NoError(t, err)
		require.Zero(t, last)
		_, err = conn.Set("/hourly/period", []byte("noon"), -1)
		require.NoError(t, err)
		_, err = other.Last(ctx)
		require.ErrorIs(t, err, recipes.ErrInvalid)
	})
}

// TestPeriod_DoCallsFunctionOncePerPeriod checks that Do calls the function at the beginning of a period, for
// which it waits unless WithoutWaiting is given.
func TestPeriod_DoCallsFunctionOncePerPeriod(t *testing.T) {
	runPeriods(t, func(t *testing.T, srv *zktest.Server, open func(*zk.Conn) *Period) {
		p, begun := open(bubble.Connect(t, srv, timeout)), time.Now()
		failed := errors.New("failed")
		var runs []time.Duration
		run := func(ctx context.Context, h *Hold) error {
			runs = append(runs, time.Since(begun).Round(time.Minute))
			require.NoError(t, ctx.Err())
			require.NoError(t, h.Err())
			return failed
		}
		require.ErrorIs(t, p.Do(t.Context(), run, WithoutWaiting()), failed)
		require.ErrorIs(t, p.Do(t.Context(), run, WithoutWaiting()), ErrEarly)
		require.ErrorIs(t, p.Do(t.Context(), run, WithWaitLimit(time.Minute)), context.DeadlineExceeded)
		require.ErrorIs(t, p.Do(t.Context(), run), failed)
		require.Equal(t, []time.Duration{0, period}, runs)
	})
}

// TestPeriod_RunCallsFunctionOncePerPeriod checks that Run calls the function once in each period, in one of
// several processes, until its context is done or the function fails.
func TestPeriod_RunCallsFunctionOncePerPeriod(t *testing.T) {
	runPeriods(t, func(t *testing.T, srv *zktest.Server, open func(*zk.Conn) *Period) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var runs []time.Time
		var processes sync.WaitGroup
		failing := make(chan error, 3)
		for range 3 {
			p := open(bubble.Connect(t, srv, timeout))
			processes.Go(func() {
				failing <- p.Run(ctx, func(ctx context.Context, h *Hold) error {
					mu.Lock()
					defer mu.Unlock()
					runs = append(runs, time.Now())
					if len(runs) == 4 {
						return errors.New("failed")
					}
					time.Sleep(10 * time.Minute)
					return h.Err()
				})
			})
		}
		time.Sleep(5*period + 20*time.Minute)
		require.ErrorContains(t, <-failing, "failed")
		require.Empty(t, failing, "the other processes continue")
		mu.Lock()
		require.Len(t, runs, 6)
		for i, run := range runs[1:] {
			require.GreaterOrEqual(t, run.Sub(runs[i]), period-time.Second, "run %d", i)
		}
		mu.Unlock()
		cancel()
		processes.Wait()
		require.NoError(t, <-failing)
		require.NoError(t, <-failing)
	})
}

// TestPeriod_BeginsHoldIfReplyIsLost checks that Next returns a hold in the current period if the reply to one
// of its writes is lost, for example to the write that begins the period.
func TestPeriod_BeginsHoldIfReplyIsLost(t *testing.T) {
	for nth := 1; nth <= 4; nth++ {
		runPeriods(t, func(t *testing.T, srv *zktest.Server, open func(*zk.Conn) *Period) {
			conn := bubble.Connect(t, srv, timeout)
			p := open(conn)
			srv.After(zktest.Match{Op: zktest.OpMulti, Session: conn.SessionID(), Nth: nth}, zktest.Cut)
			begin := time.Now()
			h, err := p.Next(t.Context())
			require.NoError(t, err)
			require.Less(t, time.Since(begin), time.Minute, "the hold has begun only in the next period")
			require.NoError(t, h.Release())
			begun, stat, err := conn.Get("/hourly/period")
			require.NoError(t, err)
			require.NotEqual(t, "0", string(begun))
			require.NotZero(t, stat.Version)
		})
	}
}

// TestPeriod_NextContinuesAfterSessionEnds checks that Next continues if its session ends before the period
// begins, and that it waits for the next period if it has already stored the beginning of this one.
func TestPeriod_NextContinuesAfterSessionEnds(t *testing.T) {
	expire := func(q *zktest.Request) zktest.Verdict {
		_ = q.Server.ExpireSession(q.Session)
		return zktest.Cut(q)
	}
	begun := regexp.MustCompile(`period "[1-9]`)
	for name, fault := range map[string]struct {
		add func(*zktest.Server, zktest.Match, zktest.HookFunc) *zktest.Hook
		do  zktest.HookFunc
	}{
		"expired before": {(*zktest.Server).Before, expire},
		"expired after":  {(*zktest.Server).After, expire},
		"silence": {(*zktest.Server).After, func(q *zktest.Request) zktest.Verdict {
			q.Server.Blackhole(zktest.BothWays, q.Session)
			return zktest.Pass(q)
		}},
	} {
		for nth := 1; nth <= 3; nth++ { // the 1st transaction creates the znode, the 2nd one reads the clock, and the 3rd one writes the time
			runPeriods(t, func(t *testing.T, srv *zktest.Server, open func(*zk.Conn) *Period) {
				conn, stored := bubble.Connect(t, srv, timeout), false
				hook := fault.add(srv, zktest.Match{Op: zktest.OpMulti, Session: conn.SessionID(), Nth: nth}, func(q *zktest.Request) zktest.Verdict {
					stored = begun.MatchString(srv.Tree())
					return fault.do(q)
				})
				begin := time.Now()
				h, err := open(conn).Next(t.Context())
				require.NoError(t, err, "%s, request %d", name, nth)
				bubble.RequireRun(t, hook)
				require.NoError(t, h.Err())
				if stored { // the first period has begun without a hold
					require.GreaterOrEqual(t, time.Since(begin), period-time.Second)
				} else {
					require.Less(t, time.Since(begin), time.Minute)
				}
				require.NoError(t, h.Release())
			})
		}
	}
}

// TestPeriod_NextPausesIfServerIsBusy checks that Next pauses before it repeats a request that a busy server
// has rejected.
func TestPeriod_NextPausesIfServerIsBusy(t *testing.T) {
	runPeriods(t, func(t *testing.T, srv *zktest.Server, open func(*zk.Conn) *Period) {
		conn := bubble.Connect(t, srv, timeout)
		srv.Before(zktest.Match{Op: zktest.OpMulti, Session: conn.SessionID()}, func(q *zktest.Request) zktest.Verdict {
			time.Sleep(time.Millisecond)
			if srv.Log().Count(zktest.OpMulti) > 100 {
				return zktest.Pass(q)
			}
			return zktest.Fail(zktest.Code(-127))(q)
		})
		begin := time.Now()
		h, err := open(conn).Next(t.Context())
		require.NoError(t, err)
		require.Greater(t, time.Since(begin), 10*time.Second)
		require.NoError(t, h.Release())
	})
}

// TestPeriod_DistinguishesEqualTimesOfTwoClients checks that a client that has lost the lock does not take the
// time that the next holder has stored for its own, if both have chosen the same millisecond.
func TestPeriod_DistinguishesEqualTimesOfTwoClients(t *testing.T) {
	runPeriods(t, func(t *testing.T, srv *zktest.Server, open func(*zk.Conn) *Period) {
		conn, other := bubble.Connect(t, srv, timeout), open(bubble.Connect(t, srv, timeout))
		var first *Hold
		hook := srv.Before(zktest.Match{Op: zktest.OpMulti, Session: conn.SessionID(), Nth: 3}, func(q *zktest.Request) zktest.Verdict {
			_ = srv.ExpireSession(q.Session)
			var err error
			first, err = other.Try(t.Context())
			require.NoError(t, err)
			return zktest.Cut(q)
		})
		begin := time.Now()
		next := bubble.Async(func() *Hold {
			h, err := open(conn).Next(t.Context())
			require.NoError(t, err)
			return h
		})
		bubble.Advance(time.Minute)
		bubble.RequireRun(t, hook)
		require.Empty(t, next, "a second hold in the period")
		require.NoError(t, first.Release())
		h := <-next
		require.GreaterOrEqual(t, time.Since(begin), period-time.Second)
		require.NoError(t, h.Release())
	})
}

// TestPeriod_RunReturnsNilIfContextIsDone checks that Run returns nil when its context is done, even if the
// cause differs from the error of the context, as with signal.NotifyContext.
func TestPeriod_RunReturnsNilIfContextIsDone(t *testing.T) {
	runPeriods(t, func(t *testing.T, srv *zktest.Server, open func(*zk.Conn) *Period) {
		for name, returned := range map[string]func(context.Context) error{
			"error": context.Context.Err, "cause": context.Cause, "nil": func(context.Context) error { return nil },
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(period+time.Minute, func() { cancel(errEnough) })
			require.NoError(t, open(bubble.Connect(t, srv, timeout)).Run(ctx, func(ctx context.Context, h *Hold) error {
				<-ctx.Done()
				return returned(ctx)
			}), name)
		}
	})
}

// TestPeriod_RejectsInvalidPeriodOrData checks that NewPeriod rejects invalid periods, and that Next rejects
// data that another program has written.
func TestPeriod_RejectsInvalidPeriodOrData(t *testing.T) {
	runPeriods(t, func(t *testing.T, srv *zktest.Server, open func(*zk.Conn) *Period) {
		conn := bubble.Connect(t, srv, timeout)
		for _, d := range []time.Duration{0, -time.Hour, time.Microsecond, 1500 * time.Microsecond} {
			_, err := NewPeriod(conn, "/hourly", d)
			require.ErrorIs(t, err, recipes.ErrInvalid)
		}
		for _, path := range []string{"/hourly", "/hourly/period"} {
			_, err := conn.Create(path, []byte("x"), 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		_, err := open(conn).Next(t.Context())
		require.ErrorIs(t, err, recipes.ErrInvalid)
		require.ErrorContains(t, err, "/hourly/period")
		require.NotContains(t, srv.Tree(), "ephemeral")
	})
}
