package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
)

// untilDone is an algorithm that does nothing until its context is done.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestCandidacy_RunRejectsSecondCall checks that Run returns ErrAlreadyStarted while the first call runs and
// after it has returned, and does not call the algorithm again.
func TestCandidacy_RunRejectsSecondCall(t *testing.T) {
	c := newCandidacy(t.Context(), nil)
	failed := errors.New("failed")
	require.Equal(t, failed, c.Run(func(context.Context) error {
		require.Equal(t, ErrAlreadyStarted, c.Run(untilDone))
		return failed
	}))
	require.Equal(t, ErrAlreadyStarted, c.Run(untilDone))
	require.True(t, isClosed(c.Done()))
	require.Equal(t, Status{Err: failed}, <-c.Status())
	_, open := <-c.Status()
	require.False(t, open)
}

// TestCandidacy_ReportsReasonOfEnd checks that Run, the final status and the leadership report why the
// candidacy has ended. After Resign, Run returns nil and there is no final status.
func TestCandidacy_ReportsReasonOfEnd(t *testing.T) {
	reason := errors.New("reason")
	for name, test := range map[string]struct {
		stop func(c *candidacy, cancel context.CancelFunc)
		want error // the result of Run
	}{
		"by Resign":        {func(c *candidacy, _ context.CancelFunc) { c.Stop(ErrResigned) }, nil},
		"for a reason":     {func(c *candidacy, _ context.CancelFunc) { c.Stop(reason); c.Stop(ErrResigned) }, reason},
		"by the context":   {func(_ *candidacy, cancel context.CancelFunc) { cancel() }, nil},
		"by the end":       {func(c *candidacy, _ context.CancelFunc) { _ = c.End("end", func() error { return nil }) }, ErrElectionOver},
		"by the algorithm": {func(c *candidacy, _ context.CancelFunc) { _ = c.Finish(reason) }, reason},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := newCandidacy(ctx, nil)
				c.SetID("a")
				leadership := make(chan *Leadership, 1)
				result := make(chan error)
				go func() {
					result <- c.Run(func(ctx context.Context) error {
						leadership <- c.Lead(7, nil)
						return untilDone(ctx)
					})
				}()
				l := <-leadership
				require.Equal(t, Status{CandidateID: "a", Role: Leader, Leadership: l}, <-c.Status())
				require.Equal(t, l, c.Leadership())
				test.stop(c, cancel)
				require.Equal(t, test.want, <-result)
				want := test.want
				if want == nil {
					want = ErrResigned
				} else {
					require.Equal(t, Status{CandidateID: "a", Err: want}, <-c.Status())
				}
				require.Equal(t, want, l.Err())
				_, open := <-c.Status()
				require.False(t, open)
				require.Nil(t, c.Leadership())
			})
		})
	}
}

// TestCandidacy_StopBeforeRunSkipsAlgorithm checks that Stop before Run ends the candidacy, and that Run then
// returns the reason without calling the algorithm.
func TestCandidacy_StopBeforeRunSkipsAlgorithm(t *testing.T) {
	for _, reason := range []error{ErrResigned, ErrElectionOver} {
		c := newCandidacy(t.Context(), nil)
		c.Stop(reason)
		require.True(t, isClosed(c.Done()))
		s, open := <-c.Status()
		require.Equal(t, reason != ErrResigned, open)
		if open {
			require.Equal(t, reason, s.Err)
		}
		err := c.Run(func(context.Context) error { panic("called") })
		if reason == ErrResigned {
			require.NoError(t, err)
		} else {
			require.Equal(t, reason, err)
		}
		require.Equal(t, ErrAlreadyStarted, c.Run(untilDone))
	}
}

// TestCandidacy_CallsAfterEndHaveNoEffect checks that Publish delivers no status, and that Lead begins no
// leadership, after the candidacy has ended.
func TestCandidacy_CallsAfterEndHaveNoEffect(t *testing.T) {
	c := newCandidacy(t.Context(), nil)
	require.NoError(t, c.Run(func(context.Context) error { return ErrResigned }))
	require.ErrorIs(t, c.Lead(1, nil).Err(), ErrResigned)
	c.Publish(Status{NowFollowing: "a"})
	require.Equal(t, Status{}, c.Current())
	require.Nil(t, c.Leadership())
	require.False(t, c.Revoke(ErrLeaseExpired))
}

// TestCandidacy_EndsLeadershipThatBeginsDuringFinish checks that a leadership that begins while Finish runs
// ends for the reason of Finish, and that the events report one loss before the end.
func TestCandidacy_EndsLeadershipThatBeginsDuringFinish(t *testing.T) {
	c := newCandidacy(t.Context(), nil)
	events := c.Events()
	first := c.Lead(1, nil)
	c.events.mu.Lock() // holding this lock delays the events that Finish reports
	var calls sync.WaitGroup
	calls.Go(func() { _ = c.Finish(ErrElectionOver) })
	<-first.Done()
	var second *Leadership
	calls.Go(func() { second = c.Lead(2, nil) })
	for !c.over.Load() && c.Leadership() == nil {
		runtime.Gosched()
	}
	c.events.mu.Unlock()
	calls.Wait()
	require.ErrorIs(t, second.Err(), ErrElectionOver)
	var kinds []event.Kind
	for e := range events {
		kinds = append(kinds, e.Kind)
	}
	require.Equal(t, []event.Kind{event.Elected, event.Lost, event.Ended}, kinds)
}

// TestCandidacy_StopWaitsForGoroutines checks that Stop waits for the goroutines of the candidacy and then
// calls their cleanup function once, and that start starts no goroutine after that.
func TestCandidacy_StopWaitsForGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidacy(t.Context(), nil)
		ended, cleaned := false, 0
		c.start(func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
		}, func() {
			require.True(t, ended)
			require.False(t, isClosed(c.Done()))
			cleaned++
		})
		c.Stop(ErrResigned)
		require.True(t, ended)
		c.Stop(ErrResigned)
		require.Equal(t, 1, cleaned)
		c.start(func(context.Context) { panic("started") }, nil)
		synctest.Wait()
	})
}

// TestCandidacy_CurrentReportsExpiredLeaderAsSuspended checks that Current returns the role Suspended as soon
// as the lease of the leader has expired by the clock, even if the algorithm has not noticed the expiry.
func TestCandidacy_CurrentReportsExpiredLeaderAsSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidacy(t.Context(), nil)
		deadline := time.Now().Add(time.Second)
		l := c.Lead(1, func() time.Time { return deadline })
		require.Equal(t, Leader, c.Current().Role)
		time.Sleep(time.Second)
		require.Equal(t, Status{Role: Suspended}, c.Current())
		require.True(t, isClosed(l.Done()))
	})
}

// TestCandidacy_ContinuesIfElectionCannotBeEnded checks that the candidacy continues after the function passed
// to End has failed, that it ends with ErrUnconfirmed if that function does not return in time, and that the
// next call of End does not call its own function while the earlier one runs.
func TestCandidacy_ContinuesIfElectionCannotBeEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidacy(t.Context(), nil)
		result := make(chan error, 1)
		go func() { result <- c.Run(untilDone) }()
		failed := errors.New("failed")
		require.Equal(t, failed, c.End("end x", func() error { return failed }))
		require.False(t, isClosed(c.Done()), "the candidacy continues")

		reply := make(chan struct{})
		start := time.Now()
		err := c.End("end x", func() error { <-reply; return nil })
		require.Equal(t, limit.Confirm, time.Since(start))
		require.ErrorIs(t, err, ErrUnconfirmed)
		require.ErrorContains(t, err, "end x")
		err = <-result
		require.ErrorIs(t, err, ErrElectionOver)
		require.ErrorIs(t, err, ErrUnconfirmed)
		close(reply)
		require.NoError(t, c.End("end x", func() error { panic("a second attempt") }))
	})
}

// TestCandidacy_EndedIsLastEvent checks that no event follows event.Ended, although another goroutine reports
// events until the end.
func TestCandidacy_EndedIsLastEvent(t *testing.T) {
	for range 2000 {
		c := newCandidacy(t.Context(), slog.New(slog.DiscardHandler))
		events := c.Events()
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					c.Report(event.Event{Kind: event.Checked})
				}
			}
		}()
		require.NoError(t, c.Run(func(context.Context) error { return ErrResigned }))
		var last event.Event
		for last = range events {
		}
		close(stop)
		<-stopped
		require.Equal(t, event.Ended, last.Kind)
	}
}

// TestAttempts_RunOneAtATime checks that concurrent calls share one attempt, and that the first call after a
// failed attempt makes a new one.
func TestAttempts_RunOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a attempts
		calls, outcomes := 0, make(chan error)
		run := func() (bool, error) {
			return a.run(time.Second, func() error { calls++; return <-outcomes })
		}
		start := time.Now()
		done, err := run()
		require.False(t, done)
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(start))

		failed := errors.New("failed")
		var waiting sync.WaitGroup
		for range 3 { // these calls wait for the first attempt
			waiting.Go(func() {
				done, err := run()
				require.True(t, done)
				require.Equal(t, failed, err)
			})
		}
		synctest.Wait()
		require.Equal(t, 1, calls)
		outcomes <- failed
		waiting.Wait()

		go func() { outcomes <- nil }()
		for range 2 { // the first call makes a new attempt, and the second one returns its result
			done, err = run()
			require.True(t, done)
			require.NoError(t, err)
			require.Equal(t, 2, calls)
		}
	})
}

// TestElection_RetractsUnreadLeadershipAfterLoss checks that a leadership that has ended before the reader has
// received its status is not delivered.
func TestElection_RetractsUnreadLeadershipAfterLoss(t *testing.T) {
	for name, reason := range map[string]error{"deleted": ErrDeleted, "expired": ErrSessionExpired} {
		synctest.Test(t, func(t *testing.T) {
			conn := new(zk.Conn)
			lease := connection.Subscribe(conn, 0)
			defer lease.Close()
			lease.Prove("/election/n_0000000000", time.Now())
			e := &Election{conn: conn, node: "/election", candidacy: newCandidacy(t.Context(), nil)}
			e.queueChanged(queue.State{Path: "/election/n_0000000000", First: true, Proven: true, Lease: lease})
			leadership := e.Current().Leadership
			require.NoError(t, leadership.Err(), name)
			e.queueChanged(queue.State{Err: reason})
			require.Error(t, leadership.Err(), name)
			require.Nil(t, e.Current().Leadership, name)
			select {
			case s := <-e.Status():
				require.Nil(t, s.Leadership, "%s: the leadership is over", name)
			default:
			}
		})
	}
}

// TestRejoinAfter_ReturnsReasonIfCandidacyIsOver checks that rejoinAfter returns nil after session expiry if
// WithRejoin is set, and otherwise the reason why the candidacy is over. If the candidacy was stopped before,
// that is the reason of the stop.
func TestRejoinAfter_ReturnsReasonIfCandidacyIsOver(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	e := &Election{
		conn: new(zk.Conn), node: "/election", rejoin: true, candidacy: newCandidacy(t.Context(), nil),
		queue: queue.Config{Options: connection.Options{Log: slog.New(slog.DiscardHandler)}}, seen: seenNode{czxid: 1, session: 1},
	}
	require.NoError(t, e.rejoinAfter(ctx, ErrSessionExpired))
	require.ErrorIs(t, e.rejoinAfter(ctx, ErrElectionOver), ErrElectionOver)
	require.ErrorIs(t, e.rejoinAfter(ctx, ErrDeleted), ErrDeleted)
	stop(ErrElectionOver)
	require.Equal(t, ErrElectionOver, e.rejoinAfter(ctx, ErrSessionExpired))
	require.ErrorIs(t, e.rejoinAfter(ctx, ErrDeleted), ErrDeleted)
	e.rejoin = false
	require.ErrorIs(t, e.rejoinAfter(ctx, ErrSessionExpired), ErrSessionExpired)
}

// TestQueueConfig_KeepsConfigOfPendingRemoval checks that queueConfig returns a copy if the removal of an
// earlier znode still uses the configuration, and otherwise does not copy the configuration.
func TestQueueConfig_KeepsConfigOfPendingRemoval(t *testing.T) {
	e := &Election{conn: new(zk.Conn), candidacy: newCandidacy(t.Context(), nil), seen: seenNode{czxid: 1, session: 1}}
	first := e.queueConfig()
	require.Same(t, first, e.queueConfig())
	pending := new(queue.Removal)
	e.leftQueue(pending)
	e.seen = seenNode{czxid: 2, session: 2}
	second := e.queueConfig()
	require.EqualValues(t, 1, first.QueueSession)
	require.EqualValues(t, 2, second.QueueSession)
}

// TestRefine_WrapsErrorOnce checks that refine wraps an error of the client library by the error of this
// package that describes it, and does not wrap the result again.
func TestRefine_WrapsErrorOnce(t *testing.T) {
	for cause, want := range map[error]error{
		fmt.Errorf("x: %w", zk.ErrNoAuth): ErrPermission,
		zk.ErrAuthFailed:                  ErrPermission,
		zk.ErrInvalidACL:                  ErrPermission,
		zk.ErrInvalidPath:                 ErrInvalid,
	} {
		err := refine(cause)
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, err, cause)
		require.Equal(t, err, refine(err))
	}
	for _, err := range []error{nil, zk.ErrBadVersion, ErrElectionOver} {
		require.Equal(t, err, refine(err))
	}
}

// TestCheckNode_AcceptsOnlyValidPaths checks that checkNode accepts exactly the paths that ZooKeeper accepts.
func TestCheckNode_AcceptsOnlyValidPaths(t *testing.T) {
	require.ErrorIs(t, checkNode(nil, "/election"), ErrInvalid)
	conn := new(zk.Conn)
	for _, node := range []string{"", "/", "election", "/a/", "//a", "/a//b", "/a/./b", "/a/../b", "/a/..", "/a\x00b", "/a\u0085b", "/\ufff0", "/a/\U0001f402", "/a\xffb", "/" + strings.Repeat("a", 4096)} {
		require.ErrorIs(t, checkNode(conn, node), ErrInvalid, "%q", node)
	}
	for _, node := range []string{"/election", "/a/b.c/..d", "/käse/選挙", "/a b", "/" + strings.Repeat("a", 4095)} {
		require.NoError(t, checkNode(conn, node), "%q", node)
	}
}

// TestCandidacy_SetsFormerErrOnlyInStatusOfLeader checks that the status with which a leadership begins
// contains the error that SetFormerErr has set, and that no other status contains it.
func TestCandidacy_SetsFormerErrOnlyInStatusOfLeader(t *testing.T) {
	c := newCandidacy(t.Context(), nil)
	c.Lead(1, nil)
	require.NoError(t, (<-c.Status()).FormerErr)
	c.Suspend(ErrLeaseExpired)
	c.SetFormerErr(ErrResigned)
	require.NoError(t, (<-c.Status()).FormerErr)
	c.Lead(2, nil)
	require.Equal(t, ErrResigned, (<-c.Status()).FormerErr)
	require.NoError(t, c.Finish(ErrResigned))
}
