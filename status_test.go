package leaderelection_test

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestStatus_SlowReaderDoesNotBlockCandidacy checks that a reader that receives its first status, and the next
// status long after, does not block the candidacy and does not receive outdated statuses (CURATOR-344, TN1,
// marathon #4640).
// Scenario 30 of docs/traps.md.
func TestStatus_SlowReaderDoesNotBlockCandidacy(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		e, err := leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(timeout))
		require.NoError(h, err)
		result := bubble.Async(e.ElectLeader)
		h.advance(0)
		first := receive(h, e.Status())
		require.Equal(h, leaderelection.Leader, first.Role)
		other := h.join(conn)
		for range 3 {
			h.advance(timeout)
			h.srv.Blackhole(zktest.BothWays, conn.SessionID())
			h.advance(timeout * 5 / 8) // longer than a lease, and too short for a reconnect
			require.Equal(h, leaderelection.Suspended, e.Current().Role)
			h.srv.Heal()
			h.advance(timeout / 2)
			require.Equal(h, leaderelection.Leader, e.Current().Role)
		}
		require.Equal(h, e.ID(), other.newestStatus().NowFollowing)
		require.Len(h, other.receivedStatuses(), 1)
		require.Equal(h, leaderelection.Suspended, receive(h, e.Status()).Role, "the loss of the first leadership")
		again := receive(h, e.Status())
		require.Same(h, e.Current().Leadership, again.Leadership)
		require.NoError(h, again.Leadership.Err())
		require.Empty(h, e.Status(), "old statuses were kept")

		h.remove(e.ID())
		h.advance(shortTime)
		require.ErrorIs(h, receive(h, result), leaderelection.ErrDeleted)
		other.requireLeads()
		last := receive(h, e.Status())
		for s := range e.Status() {
			last = s
		}
		require.ErrorIs(h, last.Err, leaderelection.ErrDeleted)
	})
}

// TestStatus_StringKeepsLogFormat checks that the text of a status, for which operators may search in logs,
// does not change.
func TestStatus_StringKeepsLogFormat(t *testing.T) {
	require.Equal(t, "follower", leaderelection.Role(0).String())
	require.Equal(t, "Role(9)", leaderelection.Role(9).String())
	l, _ := candidacy.NewLeadership(12, nil)
	require.Equal(t, "leader /e/n token 12 (was following /e/m)",
		leaderelection.Status{CandidateID: "/e/n", Role: leaderelection.Leader, Leadership: l, WasFollowing: "/e/m"}.String())
	require.Equal(t, "leader /e/n token 12 (former leader: lease expired: it was not confirmed in time)",
		leaderelection.Status{CandidateID: "/e/n", Role: leaderelection.Leader, Leadership: l, FormerErr: leaderelection.ErrLeaseExpired}.String())
	require.Equal(t, "follower /e/n following /e/m (next)",
		leaderelection.Status{CandidateID: "/e/n", NowFollowing: "/e/m", Next: true}.String())
	require.Equal(t, "follower /e/n following /e/m: session expired",
		leaderelection.Status{CandidateID: "/e/n", NowFollowing: "/e/m", Err: leaderelection.ErrSessionExpired}.String())
}

// TestStatus_NextIsTrueOnlyForSecondCandidate checks that only the second candidate is next, that a status
// reports when a candidate becomes next, and that a break of the connection does not change Next.
func TestStatus_NextIsTrueOnlyForSecondCandidate(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		var all []*candidate
		for range 4 {
			all = append(all, h.join(h.connect()))
		}
		requireNext := func(next *candidate) {
			h.Helper()
			for _, c := range all {
				require.Equal(h, c == next, c.newestStatus().Next, "%v", c.newestStatus().Status)
			}
		}
		requireNext(all[1])
		require.NoError(h, all[1].Resign()) // a follower resigns
		all = append(all[:1:1], all[2:]...)
		h.advance(0)
		all[1].requireFollows(all[0])
		requireNext(all[1])
		require.Len(h, all[2].receivedStatuses(), 1, "nothing has changed for the third candidate")

		h.whileDisconnected(all[1].conn, func() {})
		h.advance(timeout)
		requireNext(all[1])

		require.NoError(h, all[0].Resign())
		all = all[1:]
		h.advance(0)
		all[0].requireLeads()
		all[1].requireFollows(all[0])
		requireNext(all[1])
		statuses := all[1].receivedStatuses()
		require.Len(h, statuses, 2, "it becomes next with one status")
		require.Equal(h, all[0].ID(), statuses[1].WasFollowing)

		require.NoError(h, all[0].Resign())
		all = all[1:]
		h.advance(0)
		all[0].requireLeads()
		requireNext(nil)
		require.NoError(h, all[0].newestStatus().FormerErr, "it is not known")
	})
}

// TestLeadership_ClosesDoneBeforeSuspendedStatus checks that a candidate closes Done of its leadership before
// it publishes the status Suspended.
func TestLeadership_ClosesDoneBeforeSuspendedStatus(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		var leadership atomic.Pointer[leaderelection.Leadership]
		var suspended, early atomic.Int64
		conn := h.connect()
		c := h.join(conn, onStatus(func(s leaderelection.Status) {
			switch s.Role {
			case leaderelection.Leader:
				leadership.Store(s.Leadership)
			case leaderelection.Suspended:
				suspended.Add(1)
				if leadership.Load().Context().Err() == nil {
					early.Add(1)
				}
			}
		}))
		c.requireLeads()
		h.srv.Blackhole(zktest.BothWays, conn.SessionID())
		h.advance(timeout * 3 / 4)
		require.EqualValues(h, 1, suspended.Load())
		require.Zero(h, early.Load())
	})
}

// TestLeadership_BeginsAfterEndOfPrevious checks that a leadership does not begin before the previous one has
// ended (druid PR 17546).
// Scenario 42 of docs/traps.md.
func TestLeadership_BeginsAfterEndOfPrevious(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		c := h.join(h.connect(), leaderelection.WithRejoin())
		terms := []*leaderelection.Leadership{c.requireLeads()}
		for range 2 { // in each iteration, the leader is suspended and resumed
			h.advance(timeout)
			h.eachServer(func(s *zktest.Server) { s.Blackhole(zktest.BothWays, c.conn.SessionID()) })
			h.advance(timeout)
			terms = append(terms, c.requireLeads())
			require.Equal(h, terms[0].Token(), c.requireLeads().Token())
		}
		h.expire(c.conn)
		h.advance(timeout)
		terms = append(terms, c.requireLeads())
		require.Greater(h, c.requireLeads().Token(), terms[0].Token())
		for _, l := range terms[:3] {
			require.Error(h, l.Err())
		}
		// Each leadership was delivered once, and another status between each two of them.
		var delivered []*leaderelection.Leadership
		for i, s := range c.receivedStatuses() {
			if s.Role == leaderelection.Leader {
				require.True(h, i == 0 || c.receivedStatuses()[i-1].Role != leaderelection.Leader)
				delivered = append(delivered, s.Leadership)
			}
		}
		require.Len(h, delivered, len(terms))
		for i := range terms {
			require.Same(h, terms[i], delivered[i])
		}
	})
}

// TestLease_EndsWithSession checks that a lease that was confirmed in one session is not valid in the next
// session of the connection.
func TestLease_EndsWithSession(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		conn := h.connect()
		id, err := conn.Create(node+"/latch-", nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
		require.NoError(h, err)
		sub := connection.Subscribe(conn, timeout)
		defer sub.Close()
		sub.Prove(id, time.Now())
		h.advance(timeout + 60*time.Millisecond)
		old := sub.State()
		require.True(h, old.Proven)

		// The checks of the new session are blocked, so it has no lease.
		hold, release := bubble.Hold(h)
		defer release()
		h.srv.Before(zktest.Match{Op: zktest.OpMulti}, hold)
		h.whileDisconnected(conn, func() { assert.NoError(h, h.srv.ExpireSession(old.Session)) })
		h.advance(0)
		is := sub.State()
		require.True(h, is.Up)
		require.NotEqual(h, old.Session, is.Session)
		require.True(h, time.Now().Before(old.Deadline), "the old lease has expired before its session")
		require.False(h, is.Proven)
		require.Zero(h, is.Deadline)
		require.Equal(h, old.Lapses+1, is.Lapses)
	})
}

// TestLeadership_ExpiresByEitherClock checks that a lease is not valid when one of the clocks has passed its
// deadline. The monotonic clock stops while a virtual machine is suspended (golang/go#24595), and a wall clock
// can be set back. This test uses real time, because a bubble has only one clock.
// Scenario 17 of docs/traps.md.
func TestLeadership_ExpiresByEitherClock(t *testing.T) {
	for name, deadline := range map[string]time.Time{
		"the monotonic clock has stopped": withMonotonic(time.Now().Add(-time.Second), time.Hour),
		"the wall clock was set back":     withMonotonic(time.Now().Add(time.Hour), -2*time.Hour),
	} {
		l, _ := candidacy.NewLeadership(1, func() time.Time { return deadline })
		require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired, name)
		<-l.Done()
	}
	l, _ := candidacy.NewLeadership(1, func() time.Time { return withMonotonic(time.Now().Add(time.Hour), time.Hour) })
	require.NoError(t, l.Err())
}

// withMonotonic returns t with its monotonic reading changed by d. Package time has no function for that.
func withMonotonic(t time.Time, d time.Duration) time.Time {
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	fields.ext += int64(d)
	return t
}

// TestLease_IgnoresServerClock checks that a lease does not depend on the server's clock, which here stops and
// then jumps. kazoo's NonBlockingLease compares the clocks of two machines.
// Scenario 23 of docs/traps.md.
func TestLease_IgnoresServerClock(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		c, next := h.join(h.connect()), h.join(h.connect())
		l := c.requireLeads()
		h.advance(10 * timeout)
		for range 5 {
			h.srv.Advance(timeout - time.Second)
			h.advance(timeout/2 + shortTime) // long enough for the client to send a ping
			require.WithinDuration(h, time.Now().Add(timeout/2), l.Deadline(), timeout/8+timeout/32)
		}
		require.NoError(h, l.Err())
		require.Len(h, next.receivedStatuses(), 1)
		h.srv.Blackhole(zktest.BothWays, c.conn.SessionID())
		left := time.Until(l.Deadline())
		h.advance(left)
		require.Equal(h, leaderelection.Suspended, c.newestStatus().Role)
		require.Equal(h, time.Now(), c.newestStatus().at)
		next.requireFollows(c)
		h.srv.Refuse(true)
		for range 2 { // two steps, so that the second client's pings keep its session
			h.srv.Advance(timeout - time.Second)
			h.advance(timeout / 2)
		}
		next.requireLeads()
		h.srv.Refuse(false)
		h.srv.Heal()
		h.advance(2 * timeout)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
	}, zktest.WithManualClock())
}

// requireSuspendedInTime requires that a leader whose checks fail from now on is suspended when
// its lease expires, half a session timeout after the last successful check.
func (h *harness) requireSuspendedInTime(c *candidate, l *leaderelection.Leadership) {
	h.Helper()
	left := time.Until(l.Deadline())
	require.LessOrEqual(h, left, timeout/2)
	require.Greater(h, left, timeout/2-timeout/8-timeout/32, "the last check was too long ago")
	require.Greater(h, h.serverSession(c).ExpiresIn-left, timeout/8, "the session expires too early")
	h.advance(left - 1)
	require.Same(h, l, c.requireLeads())
	h.advance(1)
	require.Equal(h, leaderelection.Suspended, c.newestStatus().Role)
	require.Equal(h, time.Now(), c.newestStatus().at)
	require.ErrorIs(h, l.Err(), leaderelection.ErrLeaseExpired)
}

// TestElectLeader_ResumesOnOtherServerBeforeExpiry checks that a leader resumes when its client connects to
// another server before the session expires (CURATOR-444).
// Scenario 13 of docs/traps.md.
func TestElectLeader_ResumesOnOtherServerBeforeExpiry(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		c, next := h.join(h.connectTo(0)), h.join(h.connectTo(1))
		l := c.requireLeads()
		h.advance(2*timeout + shortTime)
		h.srv.Partition()
		h.requireSuspendedInTime(c, l)
		h.advance(timeout)
		require.NotEqual(h, h.srv.Name(), c.conn.Server())
		require.Equal(h, l.Token(), c.requireLeads().Token())
		next.requireFollows(c)
		require.Len(h, next.receivedStatuses(), 1)
	})
}

// TestElectLeader_KeepsLeaderOnFlappingConnection checks that the leader does not change when its connection
// breaks repeatedly (FLINK-10052, CURATOR-87, CURATOR-505).
// Scenario 21 of docs/traps.md.
func TestElectLeader_KeepsLeaderOnFlappingConnection(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		conn := h.connect()
		c, next := h.join(conn), h.join(conn)
		last := h.join(h.connect())
		grant, session := c.requireLeads(), conn.SessionID()
		for range 20 {
			h.eachServer(func(s *zktest.Server) { s.DropConnections(session) })
			h.advance(timeout/5 + shortTime)
			h.disconnect(conn)
			h.reconnect() // the reconnect takes longer than a second
			h.advance(timeout / 2)
		}
		require.NoError(h, grant.Err())
		require.Equal(h, session, conn.SessionID())
		for _, each := range []*candidate{c, next, last} {
			require.Len(h, each.receivedStatuses(), 1)
		}
		h.requireIDs(c.ID(), next.ID(), last.ID())
		require.Len(h, h.createdIDs(), 3)
	})
}

// TestElectLeader_StaysSuspendedOnSlowConnection checks that a leader whose replies are so late that each
// extends the lease only for a moment stays suspended, instead of changing its role repeatedly (FLINK-10052).
// Scenario 21 of docs/traps.md.
func TestElectLeader_StaysSuspendedOnSlowConnection(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		c, next := h.join(h.connect()), h.join(h.connect())
		grant := c.requireLeads()
		h.srv.Delay(zktest.BothWays, timeout*3/16, c.conn.SessionID())
		h.advance(20 * timeout)
		require.Len(h, c.receivedStatuses(), 2)
		require.Equal(h, leaderelection.Suspended, c.newestStatus().Role)
		next.requireFollows(c)
		h.srv.Heal()
		h.advance(timeout)
		require.Equal(h, grant.Token(), c.requireLeads().Token())
		require.Len(h, c.receivedStatuses(), 3)
	})
}
