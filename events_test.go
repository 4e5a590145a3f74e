package leaderelection_test

import (
	"fmt"
	"slices"
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

// eventRecorder records the events of a candidate.
type eventRecorder struct {
	*candidate
	mu         sync.Mutex
	events     []string // the events, without hand-overs, checks and watches
	violations []string // violations of the order of events
	elected    []event.Event
	handOvers  []event.Event
	checks     []event.Event
	watched    []string
	ends       []<-chan struct{} // the Done channels of the leaderships
	missed     int
}

// handOver returns the duration of the hand-over to the i-th leadership. ok is false if
// no hand-over was reported.
func (r *eventRecorder) handOver(i int) (d time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.handOvers {
		if e.Token == r.elected[i].Token {
			return e.Duration, true
		}
	}
	return 0, false
}

// newRecordedCandidate creates a candidate on a new connection, and records the events of the candidate.
func (h *harness) newRecordedCandidate(opts ...leaderelection.Option) *eventRecorder {
	h.Helper()
	r := &eventRecorder{candidate: h.newCandidate(node, h.connectAsync(zk.WithMaxBufferSize(64<<10)), opts...)}
	events := r.Events()
	go func() {
		for e := range events {
			r.record(e)
		}
	}()
	return r
}

func (r *eventRecorder) record(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fail := func(format string, args ...any) { r.violations = append(r.violations, fmt.Sprintf(format, args...)) }
	r.missed += e.Missed
	if e.Time.IsZero() {
		fail("without time: %v", e)
	}
	switch e.Kind {
	case event.HandOver:
		r.handOvers = append(r.handOvers, e)
		return
	case event.Watched:
		r.watched = append(r.watched, e.Subject)
		return
	case event.Checked:
		r.checks = append(r.checks, e)
		return
	case event.Elected, event.Resumed:
		if e.Kind == event.Elected {
			r.elected = append(r.elected, e)
		}
		if s := r.Current(); s.Role != leaderelection.Leader || s.Leadership.Token() != e.Token {
			fail("%v, but the status is %v", e, s)
		} else {
			r.ends = append(r.ends, s.Leadership.Done())
		}
	case event.Suspended, event.Lost:
		if len(r.ends) == 0 {
			fail("%v before a leadership", e)
			break
		}
		select {
		case <-r.ends[len(r.ends)-1]:
		default:
			fail("%v before Done was closed", e)
		}
	}
	if e.ID != r.ID() && e.Kind != event.Ended {
		fail("wrong ID: %v", e)
	}
	what := e.Kind.String()
	if e.Err != nil {
		what += ": " + e.Err.Error()
	}
	r.events = append(r.events, what)
}

// requireEvents waits until all goroutines of the test are blocked, and requires that exactly these events
// were received.
func (r *eventRecorder) requireEvents(want ...string) {
	r.h.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Equal(r.h, want, r.events)
	require.Empty(r.h, r.violations)
	require.Zero(r.h, r.missed)
}

// TestEvents_ReportsDurationOfHandOver checks that a successor that needs no request reports a hand-over with
// the duration zero, and that the first candidate of an election reports no hand-over.
func TestEvents_ReportsDurationOfHandOver(t *testing.T) {
	withLatency(t, func(h *harness) {
		first, second := h.newRecordedCandidate(), h.newRecordedCandidate()
		first.startAndAwaitStatus()
		second.startAndAwaitStatus()
		first.requireEvents("joined", "elected")
		second.requireEvents("joined")
		_, ok := first.handOver(0)
		require.False(h, ok, "there was no predecessor")
		require.Equal(h, []string{first.ID()}, first.watched)
		require.Equal(h, []string{second.ID(), first.ID()}, second.watched)

		h.measureRoundTrips(func() {
			go first.Resign()
			second.awaitLeader()
		})
		first.requireEvents("joined", "elected", "lost: candidate has resigned", "ended: candidate has resigned")
		second.requireEvents("joined", "elected")
		took, ok := second.handOver(0)
		require.True(h, ok)
		require.Zero(h, took, "it has sent a request")
		require.Equal(h, second.Current().Leadership.Token(), second.elected[0].Token)
	})
}

// TestEvents_IncludesListingInHandOverDuration checks that the duration of a hand-over includes the listing
// that a candidate needs if both candidates ahead of it have left at the same time.
func TestEvents_IncludesListingInHandOverDuration(t *testing.T) {
	withLatency(t, func(h *harness) {
		ahead := h.joinAll(2)
		third := h.newRecordedCandidate()
		third.startAndAwaitStatus()
		h.measureRoundTrips(func() {
			for _, c := range ahead {
				require.NoError(h, h.srv.ExpireSession(c.conn.SessionID()))
			}
			third.awaitLeader()
		})
		third.requireEvents("joined", "elected")
		took, ok := third.handOver(0)
		require.True(h, ok)
		require.Equal(h, roundTrip, took)
	})
}

// TestEvents_MeasuresHandOverFromDepartureOfLeader checks that the duration of a hand-over begins with the
// departure of the leader, even if a follower ahead of the candidate has left before.
func TestEvents_MeasuresHandOverFromDepartureOfLeader(t *testing.T) {
	withLatency(t, func(h *harness) {
		ahead := h.joinAll(2)
		third := h.newRecordedCandidate()
		third.startAndAwaitStatus()
		ahead[1].resign()
		h.measureRoundTrips(func() {
			go ahead[0].Resign()
			third.awaitLeader()
		})
		third.requireEvents("joined", "elected")
		took, ok := third.handOver(0)
		require.True(h, ok)
		require.Zero(h, took)
		require.ElementsMatch(h, []string{third.ID(), ahead[1].ID(), ahead[0].ID()}, third.watched)
	})
}

// TestEvents_OmitsHandOverWithoutNotification checks that a candidate that was not notified of the departure of
// its predecessor does not report event.HandOver. Here the server rejects the request to set the watches again.
func TestEvents_OmitsHandOverWithoutNotification(t *testing.T) {
	withLatency(t, func(h *harness) {
		ahead := h.joinAll(2)
		third := h.newRecordedCandidate()
		third.startAndAwaitStatus()
		ahead[1].resign()
		time.Sleep(leasePeriod)
		lost := h.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: third.conn.SessionID()}, zktest.Fail(zktest.Code(-99)))
		defer lost.Remove()
		h.srv.Refuse(true)
		h.srv.DropConnections(third.conn.SessionID())
		ahead[0].resign()
		h.srv.Refuse(false)
		third.awaitLeader()
		third.requireEvents("joined", "elected")
		_, ok := third.handOver(0)
		require.False(h, ok)
	})
}

// TestEvents_ReportsSuspensionAndResumption checks that a leader reports that its lease has expired, that it
// has become leader again, and, once, that it has lost the leadership.
func TestEvents_ReportsSuspensionAndResumption(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		r := h.newRecordedCandidate()
		leads := r.startAndAwaitStatus()
		require.Equal(h, leaderelection.Leader, leads.Role)
		h.srv.Blackhole(zktest.BothWays)
		<-leads.Leadership.Done()
		r.requireEvents("joined", "elected", "suspended: lease expired: it was not confirmed in time")
		h.srv.Heal()
		r.awaitLeader()
		r.requireEvents("joined", "elected", "suspended: lease expired: it was not confirmed in time", "resumed")
		h.expire(r.conn)
		h.advance(timeout)
		events := []string{
			"joined", "elected", "suspended: lease expired: it was not confirmed in time", "resumed",
			"lost: znode was deleted by another client", // the notification of the deletion arrives before that of the expiry
			"ended: session expired",
		}
		r.requireEvents(events...)
		_ = r.Resign()
		r.requireEvents(events...)
	})
}

// TestEvents_ReportsLossWhileSuspendedOnce checks that a leader whose session expires while it is suspended
// reports event.Lost once.
func TestEvents_ReportsLossWhileSuspendedOnce(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		ahead := h.joinAll(1)
		r := h.newRecordedCandidate(leaderelection.WithRejoin())
		r.startAndAwaitStatus()
		ahead[0].resign()
		r.awaitLeader()
		h.srv.Refuse(true)
		h.srv.DropConnections()
		time.Sleep(2 * timeout)
		h.srv.Refuse(false)
		r.awaitLeader()
		r.requireEvents("joined", "elected", "suspended: lease expired: it was not confirmed in time",
			"lost: session expired", "joined", "elected")
		_, ok := r.handOver(0)
		require.True(h, ok)
		_, ok = r.handOver(1)
		require.False(h, ok, "there was no predecessor this time")
		require.Greater(h, r.elected[1].Token, r.elected[0].Token)
	})
}

// TestEvents_ReportsJoinedForNewZnodeAtSamePath checks that a candidate reports event.Joined for a new znode
// that has the path of its earlier znode. The path occurs again if the servers have lost their data.
func TestEvents_ReportsJoinedForNewZnodeAtSamePath(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		r := h.newRecordedCandidate(leaderelection.WithRejoin(), leaderelection.WithCreateNode(), leaderelection.WithNamePrefix("n_"))
		r.startAndAwaitStatus()
		first := r.ID()
		h.srv.Restart(zktest.LoseTree)
		time.Sleep(timeout)
		r.awaitLeader()
		require.Equal(h, first, r.ID())
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Equal(h, []string{"joined", "elected"}, r.events[len(r.events)-2:])
	})
}

// TestEvents_ReportsEndOfElection checks that the last event of the leader and of a follower reports that the
// election is over.
func TestEvents_ReportsEndOfElection(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		first, second := h.newRecordedCandidate(), h.newRecordedCandidate()
		first.startAndAwaitStatus()
		second.startAndAwaitStatus()
		// Require these events before the status changes again, because the recorder
		// compares each event with the status at the time at which it receives the event.
		first.requireEvents("joined", "elected")
		require.NoError(h, second.EndElection())
		h.advance(shortTime)
		// The leader is first notified that its znode was deleted, and then that the election has ended.
		first.requireEvents("joined", "elected", "lost: znode was deleted by another client", "ended: election is over")
		second.requireEvents("joined", "ended: election is over")
	})
}

// TestEvents_ReportsEndedIfCandidateCannotJoin checks that a candidate reports event.Ended if it cannot join,
// or if it resigns before ElectLeader is called.
func TestEvents_ReportsEndedIfCandidateCannotJoin(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		r, never := h.newRecordedCandidate(), h.newRecordedCandidate()
		h.srv.Refuse(true)
		h.srv.DropConnections()
		require.ErrorIs(h, r.ElectLeader(), leaderelection.ErrUnreachable)
		synctest.Wait()
		r.requireEvents("ended: the server does not answer (the connection has no session)")

		require.NoError(h, never.Resign())
		require.NoError(h, never.ElectLeader())
		never.requireEvents("ended: candidate has resigned")
	})
}

// TestEvents_ReportsEachCheck checks that the leader reports each check of its lease, with an error if the
// connection breaks before the answer.
func TestEvents_ReportsEachCheck(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		r := h.newRecordedCandidate()
		r.startAndAwaitStatus()
		h.advance(10*leasePeriod + leasePeriod/2)
		require.Len(h, r.checks, 10)
		h.srv.Before(zktest.Match{Op: zktest.OpMulti, Nth: 1}, zktest.Cut)
		h.advance(timeout)
		failed := slices.DeleteFunc(r.checks, func(e event.Event) bool { return e.Err == nil && e.Duration >= 0 })
		require.Len(h, failed, 1)
		require.Error(h, failed[0].Err)
	})
}

// TestEvents_LetsReaderCallResign checks that the goroutine that reads the events can end the candidacy by a
// call of Resign.
func TestEvents_LetsReaderCallResign(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		c := h.newCandidate(node, h.connect())
		events := c.Events()
		c.start()
		var kinds []event.Kind
		for e := range events {
			switch e.Kind {
			case event.Watched:
				continue
			case event.Elected:
				_ = c.Resign()
			}
			kinds = append(kinds, e.Kind)
		}
		require.Equal(h, []event.Kind{event.Joined, event.Elected, event.Lost, event.Ended}, kinds)
	})
}
