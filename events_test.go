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
	"github.com/go-leaderelection/leaderelection/zktest"
)

// observed is a candidate and the events that were received from it.
type observed struct {
	*contender
	mu        sync.Mutex
	events    []string // without hand-overs, checks and watches
	broken    []string // violations that were found when an event was received
	elected   []leaderelection.Event
	handOvers []leaderelection.Event
	watched   []string
	ends      []<-chan struct{} // Done of each leadership
	counts
}

type counts struct {
	checked int
	failed  int // of checked
	missed  int
}

// rest returns the counts of h when all goroutines of the test are blocked.
func (h *observed) rest() counts {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts
}

// handOver returns the duration of the hand-over to leadership number i.
func (h *observed) handOver(i int) (d time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.handOvers {
		if e.Token == h.elected[i].Token {
			return e.Duration, true
		}
	}
	return 0, false
}

// observe creates a candidate on conn whose events are recorded.
func (l *line) observe(conn *zk.Conn, opts ...leaderelection.Option) *observed {
	l.Helper()
	return l.observeAfter(conn, func(*observed, leaderelection.Event) {}, opts...)
}

// observeAfter is observe with a function that is called with each event before it is recorded.
func (l *line) observeAfter(conn *zk.Conn, before func(*observed, leaderelection.Event), opts ...leaderelection.Option) *observed {
	l.Helper()
	opts = append(opts, leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(l.timeout))
	e, err := leaderelection.NewElection(conn, electionNode, opts...)
	require.NoError(l, err)
	h := &observed{contender: &contender{Election: e, conn: conn}}
	events := e.Events()
	go func() {
		for e := range events {
			before(h, e)
			h.record(e)
		}
	}()
	return h
}

func (h *observed) record(e leaderelection.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fail := func(format string, args ...any) { h.broken = append(h.broken, fmt.Sprintf(format, args...)) }
	h.missed += e.Missed
	if e.Time.IsZero() {
		fail("without time: %v", e)
	}
	switch e.Kind {
	case leaderelection.EventHandOver:
		h.handOvers = append(h.handOvers, e)
		return
	case leaderelection.EventWatched:
		h.watched = append(h.watched, e.Subject)
		return
	case leaderelection.EventChecked:
		h.checked++
		if e.Duration < 0 {
			fail("answered before it was sent: %v", e)
		}
		if e.Err != nil {
			h.failed++
		}
		return
	case leaderelection.EventElected, leaderelection.EventResumed:
		if e.Kind == leaderelection.EventElected {
			h.elected = append(h.elected, e)
		}
		if s := h.Current(); s.Role != leaderelection.Leader || s.Leadership.Token() != e.Token {
			fail("%v, but the status is %v", e, s)
		} else {
			h.ends = append(h.ends, s.Leadership.Done())
		}
	case leaderelection.EventSuspended, leaderelection.EventLost:
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
	if e.ID != h.ID() && e.Kind != leaderelection.EventEnded {
		fail("wrong ID: %v", e)
	}
	what := e.Kind.String()
	if e.Err != nil {
		what += ": " + e.Err.Error()
	}
	h.events = append(h.events, what)
}

// heard requires the events of h when all goroutines of the test are blocked.
func (l *line) heard(h *observed, want ...string) {
	l.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Equal(l, want, h.events)
	require.Empty(l, h.broken)
	require.Zero(l, h.missed)
}

func TestEventsOfAHandOver(t *testing.T) {
	inSlowLine(t, func(l *line) {
		first, second := l.observe(l.connect()), l.observe(l.connect())
		l.join(first.contender)
		l.join(second.contender)
		l.heard(first, "joined", "elected")
		l.heard(second, "joined")
		_, ok := first.handOver(0)
		require.False(t, ok, "there was no predecessor")
		require.Equal(t, []string{first.ID()}, first.watched)
		require.Equal(t, []string{second.ID(), first.ID()}, second.watched)

		l.cost(func() {
			go l.resign(first.contender)
			l.leads(second.contender)
		})
		l.heard(first, "joined", "elected", "lost: candidate has resigned", "ended: candidate has resigned")
		l.heard(second, "joined", "elected")
		took, ok := second.handOver(0)
		require.True(t, ok)
		require.Zero(t, took, "it asks nothing")
		require.Equal(t, second.Current().Leadership.Token(), second.elected[0].Token)
	})
}

// The third in line has to list when both ahead go at once.
func TestEventsHaveTheDurationOfAHandOver(t *testing.T) {
	inSlowLine(t, func(l *line) {
		ahead := l.stand(2)
		third := l.observe(l.connect())
		l.join(third.contender)
		l.cost(func() {
			for _, c := range ahead {
				require.NoError(t, l.srv.ExpireSession(c.conn.SessionID()))
			}
			l.leads(third.contender)
		})
		l.heard(third, "joined", "elected")
		took, ok := third.handOver(0)
		require.True(t, ok)
		require.Equal(t, roundTrip, took)
	})
}

// A predecessor's end that does not make a leader has nothing to do with the end
// that does.
func TestEventsOfAPredecessorThatWasNoLeader(t *testing.T) {
	inSlowLine(t, func(l *line) {
		ahead := l.stand(2)
		third := l.observe(l.connect())
		l.join(third.contender)
		l.resign(ahead[1])
		l.cost(func() {
			go l.resign(ahead[0])
			l.leads(third.contender)
		})
		l.heard(third, "joined", "elected")
		took, ok := third.handOver(0)
		require.True(t, ok)
		require.Zero(t, took)
		require.ElementsMatch(t, []string{third.ID(), ahead[1].ID(), ahead[0].ID()}, third.watched)
	})
}

// How long a hand-over took is not known of one that was not told: here the server
// does not set the watches anew.
func TestEventsOfAHandOverWithoutConnection(t *testing.T) {
	inSlowLine(t, func(l *line) {
		ahead := l.stand(2)
		third := l.observe(l.connect())
		l.join(third.contender)
		l.resign(ahead[1])
		time.Sleep(leasePeriod)
		lost := l.srv.Before(zktest.Match{Op: zktest.OpSetWatches, Session: third.conn.SessionID()}, zktest.Fail(zktest.Code(-99)))
		defer lost.Remove()
		l.srv.Refuse(true)
		l.srv.DropConnections(third.conn.SessionID())
		l.resign(ahead[0])
		l.srv.Refuse(false)
		l.leads(third.contender)
		l.heard(third, "joined", "elected")
		_, ok := third.handOver(0)
		require.False(t, ok)
	})
}

func TestEventsOfASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		h := l.observe(l.connect())
		leads := l.join(h.contender)
		require.Equal(t, leaderelection.Leader, leads.Role)
		l.srv.Blackhole(zktest.BothWays)
		<-leads.Leadership.Done()
		l.heard(h, "joined", "elected", "suspended: lease expired: it was not confirmed in time")
		l.srv.Heal()
		l.leads(h.contender)
		l.heard(h, "joined", "elected", "suspended: lease expired: it was not confirmed in time", "resumed")
		require.NoError(t, l.srv.ExpireSession(h.conn.SessionID()))
		<-h.over
		events := []string{
			"joined", "elected", "suspended: lease expired: it was not confirmed in time", "resumed",
			"lost: znode was deleted by another client", // the first that is heard of it
			"ended: session expired",
		}
		l.heard(h, events...)
		_ = h.Resign()
		l.heard(h, events...)
	})
}

func TestEventsOfALeadershipThatIsLostWhileSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		ahead := l.stand(1)
		h := l.observe(l.connect(), leaderelection.WithRejoin())
		l.join(h.contender)
		l.resign(ahead[0])
		l.leads(h.contender)
		l.srv.Refuse(true)
		l.srv.DropConnections()
		time.Sleep(2 * sessionTimeout)
		l.srv.Refuse(false)
		l.leads(h.contender)
		l.heard(h, "joined", "elected", "suspended: lease expired: it was not confirmed in time",
			"lost: session expired", "joined", "elected")
		_, ok := h.handOver(0)
		require.True(t, ok)
		_, ok = h.handOver(1)
		require.False(t, ok, "there was no predecessor this time")
		require.Greater(t, h.elected[1].Token, h.elected[0].Token)
	})
}

// In a tree that was built again, the candidate's new znode has the path of its earlier one.
func TestEventsOfASecondZnodeAtThePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		h := l.observe(l.connect(), leaderelection.WithRejoin(), leaderelection.WithNaming(leaderelection.Prefix("n_")))
		l.join(h.contender)
		first := h.ID()
		l.srv.Restart(zktest.LoseTree)
		time.Sleep(sessionTimeout)
		l.leads(h.contender)
		require.Equal(t, first, h.ID())
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Equal(t, []string{"joined", "elected"}, h.events[len(h.events)-2:])
	})
}

func TestEventsOfAnElectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		first, second := l.observe(l.connect()), l.observe(l.connect())
		l.join(first.contender)
		l.join(second.contender)
		l.heard(first, "joined", "elected") // before the status changes again: events are received later than it
		require.NoError(t, second.EndElection())
		<-first.over
		<-second.over
		// What the leader sees first is that its znode is gone.
		l.heard(first, "joined", "elected", "lost: znode was deleted by another client", "ended: election is over")
		l.heard(second, "joined", "ended: election is over")
	})
}

func TestEventsOfACandidateThatCannotJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		h, never := l.observe(l.connect()), l.observe(l.connect())
		l.srv.Refuse(true)
		l.srv.DropConnections()
		require.ErrorIs(t, h.ElectLeader(), leaderelection.ErrUnreachable)
		synctest.Wait()
		l.heard(h, "ended: ZooKeeper does not answer")

		require.NoError(t, never.Resign())
		require.ErrorIs(t, never.ElectLeader(), leaderelection.ErrCandidacyOver)
		synctest.Wait()
		require.Empty(t, never.events, "it has not taken part")
	})
}

// After some time only the leader sends checks.
func TestEventsOfChecks(t *testing.T) {
	const periods = 100
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		all := []*observed{l.observe(l.connect()), l.observe(l.connect()), l.observe(l.connect())}
		for _, h := range all {
			l.join(h.contender)
		}
		time.Sleep(standby + 10*leasePeriod + leasePeriod/2)
		before := []counts{all[0].rest(), all[1].rest(), all[2].rest()}
		time.Sleep(periods * leasePeriod)
		for i, want := range []int{periods, 0, 0} {
			now := all[i].rest()
			require.Equal(t, want, now.checked-before[i].checked, "candidate %d", i)
			require.Zero(t, now.failed)
		}
		l.heard(all[0], "joined", "elected")
	})
}

// A check that is lost with its connection has proven nothing.
func TestEventsOfChecksThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		h := l.observe(l.connect())
		l.join(h.contender)
		time.Sleep(2 * leasePeriod)
		l.srv.Before(zktest.Match{Op: zktest.OpMulti, Nth: 1}, zktest.Cut)
		time.Sleep(sessionTimeout)
		require.Equal(t, 1, h.rest().failed)
	})
}

// A reader that does not receive events delays nothing.
func TestEventsThatAreNotReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		release := make(chan struct{})
		blocked := false
		h := l.observeAfter(l.connect(), func(_ *observed, e leaderelection.Event) {
			if e.Kind == leaderelection.EventElected {
				blocked = true
				<-release
			}
		})
		follower := l.observe(l.connect())
		leads := l.join(h.contender)
		l.join(follower.contender)
		time.Sleep(100 * leasePeriod) // more events than can wait
		synctest.Wait()
		require.True(t, blocked)
		require.NoError(t, leads.Leadership.Err())

		l.srv.Partition(h.conn.SessionID())
		<-leads.Leadership.Done()
		require.Len(t, l.srv.Sessions(), 2, "another one can lead already")
		require.NotEqual(t, leaderelection.Leader, follower.Current().Role)
		l.srv.Heal()
		l.leads(h.contender)

		start := time.Now()
		require.NoError(t, h.Resign())
		require.Zero(t, time.Since(start))
		l.leads(follower.contender)
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

// If events are received late, checks were dropped first.
func TestEventsThatAreReceivedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		release := make(chan struct{})
		h := l.observeAfter(l.connect(), func(_ *observed, e leaderelection.Event) {
			if e.Kind == leaderelection.EventElected {
				<-release
			}
		})
		leads := l.join(h.contender)
		l.srv.Blackhole(zktest.BothWays)
		<-leads.Leadership.Done()
		l.srv.Heal()
		l.leads(h.contender)
		time.Sleep(100*leasePeriod + leasePeriod/2)
		close(release)
		synctest.Wait()
		time.Sleep(leasePeriod) // the next check reports the dropped ones
		now := h.rest()
		require.Equal(t, []string{"joined", "elected", "suspended: lease expired: it was not confirmed in time", "resumed"}, h.events)
		require.Positive(t, now.missed)
		require.Positive(t, now.checked)
		require.Greater(t, now.checked+now.missed, 100)
	})
}

// The reader may end the candidacy.
func TestEventReaderResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		h := l.observeAfter(l.connect(), func(h *observed, e leaderelection.Event) {
			if e.Kind == leaderelection.EventElected {
				_ = h.Resign()
			}
		})
		l.start(h.contender)
		<-h.over
		synctest.Wait()
		require.Equal(t, []string{"joined", "elected", "lost: candidate has resigned", "ended: candidate has resigned"}, h.events)
	})
}
