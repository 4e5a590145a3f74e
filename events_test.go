package leaderelection_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// eventRecorder is a candidate and the events that were received from it.
type eventRecorder struct {
	*costCandidate
	mu         sync.Mutex
	events     []string // without hand-overs, checks and watches
	violations []string // found when an event was received
	elected    []event.Event
	handOvers  []event.Event
	watched    []string
	ends       []<-chan struct{} // Done of each leadership
	counts
}

type counts struct {
	checked int
	failed  int // number of checked events with an error
	missed  int
}

// counted returns the counts of events when all goroutines of the test are blocked.
func (h *eventRecorder) counted() counts {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts
}

// handOver returns the duration of the hand-over to leadership number i.
func (h *eventRecorder) handOver(i int) (d time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.handOvers {
		if e.Token == h.elected[i].Token {
			return e.Duration, true
		}
	}
	return 0, false
}

// newRecorder creates a candidate on conn whose events are recorded.
func (f *costFixture) newRecorder(conn *zk.Conn, opts ...leaderelection.Option) *eventRecorder {
	f.Helper()
	return f.newRecorderWith(conn, func(*eventRecorder, event.Event) {}, opts...)
}

// newRecorderWith is newRecorder with a function that is called with each event before it is
// recorded.
func (f *costFixture) newRecorderWith(conn *zk.Conn, before func(*eventRecorder, event.Event), opts ...leaderelection.Option) *eventRecorder {
	f.Helper()
	opts = append(opts, leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(f.timeout))
	e, err := leaderelection.NewElection(conn, electionNode, opts...)
	require.NoError(f, err)
	h := &eventRecorder{costCandidate: &costCandidate{Election: e, conn: conn}}
	events := e.Events()
	go func() {
		for e := range events {
			before(h, e)
			h.record(e)
		}
	}()
	return h
}

func (h *eventRecorder) record(e event.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fail := func(format string, args ...any) { h.violations = append(h.violations, fmt.Sprintf(format, args...)) }
	h.missed += e.Missed
	if e.Time.IsZero() {
		fail("without time: %v", e)
	}
	switch e.Kind {
	case event.HandOver:
		h.handOvers = append(h.handOvers, e)
		return
	case event.Watched:
		h.watched = append(h.watched, e.Subject)
		return
	case event.Checked:
		h.checked++
		if e.Duration < 0 {
			fail("answered before it was sent: %v", e)
		}
		if e.Err != nil {
			h.failed++
		}
		return
	case event.Elected, event.Resumed:
		if e.Kind == event.Elected {
			h.elected = append(h.elected, e)
		}
		if s := h.Current(); s.Role != leaderelection.Leader || s.Leadership.Token() != e.Token {
			fail("%v, but the status is %v", e, s)
		} else {
			h.ends = append(h.ends, s.Leadership.Done())
		}
	case event.Suspended, event.Lost:
		if len(h.ends) == 0 {
			fail("%v before a leadership", e)
			break
		}
		select {
		case <-h.ends[len(h.ends)-1]:
		default:
			fail("%v before Done was closed", e)
		}
	}
	if e.ID != h.ID() && e.Kind != event.Ended {
		fail("wrong ID: %v", e)
	}
	what := e.Kind.String()
	if e.Err != nil {
		what += ": " + e.Err.Error()
	}
	h.events = append(h.events, what)
}

// requireEvents requires the events that h has received when all goroutines of the test are
// blocked.
func (f *costFixture) requireEvents(h *eventRecorder, want ...string) {
	f.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Equal(f, want, h.events)
	require.Empty(f, h.violations)
	require.Zero(f, h.missed)
}

// TestEvents_HandOver fails if the events of a hand-over or its duration are wrong.
func TestEvents_HandOver(t *testing.T) {
	withLatency(t, func(f *costFixture) {
		first, second := f.newRecorder(f.connect()), f.newRecorder(f.connect())
		f.join(first.costCandidate)
		f.join(second.costCandidate)
		f.requireEvents(first, "joined", "elected")
		f.requireEvents(second, "joined")
		_, ok := first.handOver(0)
		require.False(t, ok, "there was no predecessor")
		require.Equal(t, []string{first.ID()}, first.watched)
		require.Equal(t, []string{second.ID(), first.ID()}, second.watched)

		f.measure(func() {
			go f.resign(first.costCandidate)
			f.awaitLeader(second.costCandidate)
		})
		f.requireEvents(first, "joined", "elected", "lost: candidate has resigned", "ended: candidate has resigned")
		f.requireEvents(second, "joined", "elected")
		took, ok := second.handOver(0)
		require.True(t, ok)
		require.Zero(t, took, "it has sent a request")
		require.Equal(t, second.Current().Leadership.Token(), second.elected[0].Token)
	})
}

// TestEvents_HandOverWithListing fails if the duration does not include the listing of the third
// candidate, after both candidates before it have left at the same time.
func TestEvents_HandOverWithListing(t *testing.T) {
	withLatency(t, func(f *costFixture) {
		ahead := f.joinAll(2)
		third := f.newRecorder(f.connect())
		f.join(third.costCandidate)
		f.measure(func() {
			for _, c := range ahead {
				require.NoError(t, f.srv.ExpireSession(c.conn.SessionID()))
			}
			f.awaitLeader(third.costCandidate)
		})
		f.requireEvents(third, "joined", "elected")
		took, ok := third.handOver(0)
		require.True(t, ok)
		require.Equal(t, roundTrip, took)
	})
}

// TestEvents_HandOverAfterFollower fails if the duration of a hand-over starts when a predecessor
// that was not the leader has left.
func TestEvents_HandOverAfterFollower(t *testing.T) {
	withLatency(t, func(f *costFixture) {
		ahead := f.joinAll(2)
		third := f.newRecorder(f.connect())
		f.join(third.costCandidate)
		f.resign(ahead[1])
		f.measure(func() {
			go f.resign(ahead[0])
			f.awaitLeader(third.costCandidate)
		})
		f.requireEvents(third, "joined", "elected")
		took, ok := third.handOver(0)
		require.True(t, ok)
		require.Zero(t, took)
		require.ElementsMatch(t, []string{third.ID(), ahead[1].ID(), ahead[0].ID()}, third.watched)
	})
}

// TestEvents_HandOverUnnoticed fails if a hand-over is reported although the candidate was not
// notified: here the server rejects the request to set the watches again.
func TestEvents_HandOverUnnoticed(t *testing.T) {
	withLatency(t, func(f *costFixture) {
		ahead := f.joinAll(2)
		third := f.newRecorder(f.connect())
		f.join(third.costCandidate)
		f.resign(ahead[1])
		time.Sleep(leasePeriod)
		lost := f.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: third.conn.SessionID()}, zktest.Fail(zktest.Code(-99)))
		defer lost.Remove()
		f.srv.Refuse(true)
		f.srv.DropConnections(third.conn.SessionID())
		f.resign(ahead[0])
		f.srv.Refuse(false)
		f.awaitLeader(third.costCandidate)
		f.requireEvents(third, "joined", "elected")
		_, ok := third.handOver(0)
		require.False(t, ok)
	})
}

// TestEvents_Suspension fails if it is not reported that a leader is suspended, or that it resumes.
func TestEvents_Suspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCostFixture(t)
		h := f.newRecorder(f.connect())
		leads := f.join(h.costCandidate)
		require.Equal(t, leaderelection.Leader, leads.Role)
		f.srv.Blackhole(zktest.BothWays)
		<-leads.Leadership.Done()
		f.requireEvents(h, "joined", "elected", "suspended: lease expired: it was not confirmed in time")
		f.srv.Heal()
		f.awaitLeader(h.costCandidate)
		f.requireEvents(h, "joined", "elected", "suspended: lease expired: it was not confirmed in time", "resumed")
		require.NoError(t, f.srv.ExpireSession(h.conn.SessionID()))
		<-h.over
		events := []string{
			"joined", "elected", "suspended: lease expired: it was not confirmed in time", "resumed",
			"lost: znode was deleted by another client", // the first notification
			"ended: session expired",
		}
		f.requireEvents(h, events...)
		_ = h.Resign()
		f.requireEvents(h, events...)
	})
}

// TestEvents_LostWhileSuspended fails if the loss of a suspended leadership is not reported once.
func TestEvents_LostWhileSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCostFixture(t)
		ahead := f.joinAll(1)
		h := f.newRecorder(f.connect(), leaderelection.WithRejoin())
		f.join(h.costCandidate)
		f.resign(ahead[0])
		f.awaitLeader(h.costCandidate)
		f.srv.Refuse(true)
		f.srv.DropConnections()
		time.Sleep(2 * sessionTimeout)
		f.srv.Refuse(false)
		f.awaitLeader(h.costCandidate)
		f.requireEvents(h, "joined", "elected", "suspended: lease expired: it was not confirmed in time",
			"lost: session expired", "joined", "elected")
		_, ok := h.handOver(0)
		require.True(t, ok)
		_, ok = h.handOver(1)
		require.False(t, ok, "there was no predecessor this time")
		require.Greater(t, h.elected[1].Token, h.elected[0].Token)
	})
}

// TestEvents_SecondZnodeAtThePath fails if event.Joined is not reported for a new znode that has
// the path of an earlier one. This is possible if the servers have lost their data.
func TestEvents_SecondZnodeAtThePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCostFixture(t)
		h := f.newRecorder(f.connect(), leaderelection.WithRejoin(), leaderelection.WithNamePrefix("n_"))
		f.join(h.costCandidate)
		first := h.ID()
		f.srv.Restart(zktest.LoseTree)
		time.Sleep(sessionTimeout)
		f.awaitLeader(h.costCandidate)
		require.Equal(t, first, h.ID())
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Equal(t, []string{"joined", "elected"}, h.events[len(h.events)-2:])
	})
}

// TestEvents_EndElection fails if a candidate does not report that the election has ended.
func TestEvents_EndElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCostFixture(t)
		first, second := f.newRecorder(f.connect()), f.newRecorder(f.connect())
		f.join(first.costCandidate)
		f.join(second.costCandidate)
		f.requireEvents(first, "joined", "elected") // before the status changes again, because events are received later
		require.NoError(t, second.EndElection())
		<-first.over
		<-second.over
		// The leader is first notified that its znode was deleted.
		f.requireEvents(first, "joined", "elected", "lost: znode was deleted by another client", "ended: election is over")
		f.requireEvents(second, "joined", "ended: election is over")
	})
}

// TestEvents_CannotJoin fails if a candidate that cannot join, or that resigns before it is started,
// does not report event.Ended.
func TestEvents_CannotJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCostFixture(t)
		h, never := f.newRecorder(f.connect()), f.newRecorder(f.connect())
		f.srv.Refuse(true)
		f.srv.DropConnections()
		require.ErrorIs(t, h.ElectLeader(), leaderelection.ErrUnreachable)
		synctest.Wait()
		f.requireEvents(h, "ended: ZooKeeper does not answer (the connection has no session)")

		require.NoError(t, never.Resign())
		require.NoError(t, never.ElectLeader())
		f.requireEvents(never, "ended: candidate has resigned")
	})
}

// TestEvents_Checks fails if the leader does not report its checks, or if another candidate still
// sends checks after some time.
func TestEvents_Checks(t *testing.T) {
	const periods = 100
	synctest.Test(t, func(t *testing.T) {
		f := newCostFixture(t)
		all := []*eventRecorder{f.newRecorder(f.connect()), f.newRecorder(f.connect()), f.newRecorder(f.connect())}
		for _, h := range all {
			f.join(h.costCandidate)
		}
		time.Sleep(standby + 10*leasePeriod + leasePeriod/2)
		before := []counts{all[0].counted(), all[1].counted(), all[2].counted()}
		time.Sleep(periods * leasePeriod)
		for i, want := range []int{periods, 0, 0} {
			now := all[i].counted()
			require.Equal(t, want, now.checked-before[i].checked, "candidate %d", i)
			require.Zero(t, now.failed)
		}
		f.requireEvents(all[0], "joined", "elected")
	})
}

// TestEvents_FailedCheck fails if a check that is lost with its connection is reported without an
// error.
func TestEvents_FailedCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCostFixture(t)
		h := f.newRecorder(f.connect())
		f.join(h.costCandidate)
		time.Sleep(2 * leasePeriod)
		f.srv.Before(zktest.Match{Op: zktest.OpMulti, Nth: 1}, zktest.Cut)
		time.Sleep(sessionTimeout)
		require.Equal(t, 1, h.counted().failed)
	})
}

// TestEvents_NotReceived fails if a reader that does not receive events delays the candidate.
func TestEvents_NotReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCostFixture(t)
		release := make(chan struct{})
		blocked := false
		h := f.newRecorderWith(f.connect(), func(_ *eventRecorder, e event.Event) {
			if e.Kind == event.Elected {
				blocked = true
				<-release
			}
		})
		follower := f.newRecorder(f.connect())
		leads := f.join(h.costCandidate)
		f.join(follower.costCandidate)
		time.Sleep(100 * leasePeriod) // more events than the channel holds
		synctest.Wait()
		require.True(t, blocked)
		require.NoError(t, leads.Leadership.Err())

		f.srv.Partition(h.conn.SessionID())
		<-leads.Leadership.Done()
		require.Len(t, f.srv.Sessions(), 2, "the session has expired")
		require.NotEqual(t, leaderelection.Leader, follower.Current().Role)
		f.srv.Heal()
		f.awaitLeader(h.costCandidate)

		start := time.Now()
		require.NoError(t, h.Resign())
		require.Zero(t, time.Since(start))
		f.awaitLeader(follower.costCandidate)
		require.Zero(t, time.Since(start))
		<-h.over
		require.Zero(t, time.Since(start))
		h.mu.Lock()
		require.Equal(t, []string{"joined"}, h.events)
		h.mu.Unlock()
		close(release)
		synctest.Wait()
		require.Equal(t, []string{
			"joined", "elected", "suspended: lease expired: it was not confirmed in time", "resumed",
			"lost: candidate has resigned", "ended: candidate has resigned",
		}, h.events)
	})
}

// TestEvents_ReceivedLate fails if other events than checks are dropped for a slow reader.
func TestEvents_ReceivedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCostFixture(t)
		release := make(chan struct{})
		h := f.newRecorderWith(f.connect(), func(_ *eventRecorder, e event.Event) {
			if e.Kind == event.Elected {
				<-release
			}
		})
		leads := f.join(h.costCandidate)
		f.srv.Blackhole(zktest.BothWays)
		<-leads.Leadership.Done()
		f.srv.Heal()
		f.awaitLeader(h.costCandidate)
		time.Sleep(100*leasePeriod + leasePeriod/2)
		close(release)
		synctest.Wait()
		time.Sleep(leasePeriod) // the next check reports the dropped ones
		now := h.counted()
		require.Equal(t, []string{"joined", "elected", "suspended: lease expired: it was not confirmed in time", "resumed"}, h.events)
		require.Positive(t, now.missed)
		require.Positive(t, now.checked)
		require.Greater(t, now.checked+now.missed, 100)
	})
}

// TestEvents_ReaderResigns fails if the reader of events cannot end the candidacy.
func TestEvents_ReaderResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCostFixture(t)
		h := f.newRecorderWith(f.connect(), func(h *eventRecorder, e event.Event) {
			if e.Kind == event.Elected {
				_ = h.Resign()
			}
		})
		f.start(h.costCandidate)
		<-h.over
		synctest.Wait()
		require.Equal(t, []string{"joined", "elected", "lost: candidate has resigned", "ended: candidate has resigned"}, h.events)
	})
}
