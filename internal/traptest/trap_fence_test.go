package traptest

import (
	"testing"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// CURATOR-206, kazoo #2, go-zookeeper #190: the holder is not told that the
// leadership is gone.
func TestTrap14_HolderIsTold(t *testing.T) {
	for _, end := range []struct {
		name   string
		do     func(h *harness, c *candidate)
		reason error // of the leadership
		final  error // of the candidacy
	}{
		{"resigned", func(h *harness, c *candidate) {
			require.NoError(h, c.Resign())
		}, leaderelection.ErrResigned, nil},
		{"znode deleted", func(h *harness, c *candidate) {
			h.remove(c.ID())
		}, leaderelection.ErrCandidateDeleted, leaderelection.ErrCandidateDeleted},
		{"election over", func(h *harness, c *candidate) {
			require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		}, leaderelection.ErrCandidateDeleted, leaderelection.ErrElectionOver},
		{"election ended by the leader", func(h *harness, c *candidate) {
			require.NoError(h, c.EndElection())
		}, leaderelection.ErrCandidateDeleted, leaderelection.ErrElectionOver},
		{"connection closed", func(_ *harness, c *candidate) {
			c.conn.Close()
		}, leaderelection.ErrCandidateDeleted, leaderelection.ErrConnClosed},
	} {
		t.Run(end.name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				c := h.join(h.connect())
				l := c.requireLeads()
				told := async(func() time.Time { <-l.Done(); return time.Now() })
				h.advance(timeout / 3)
				begin := time.Now()
				end.do(h, c)
				h.advance(2 * shortTime)
				require.WithinDuration(h, begin, receive(h, told), shortTime)
				require.ErrorIs(h, l.Err(), end.reason)
				if end.final == nil {
					require.NoError(h, c.requireOver())
				} else {
					require.ErrorIs(h, c.requireOver(), end.final)
				}
				require.Equal(h, leaderelection.Follower, c.Current().Role)
			})
		})
	}
}

// InterProcessMutex keeps who holds it in the process, and goes on to say so
// after the session: here nothing says it.
func TestTrap15_NothingOfALostLeadershipIsLeft(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		c, next := h.join(h.connect()), h.join(h.connect())
		l := c.requireLeads()
		h.expire(c.conn)
		h.advance(0)
		next.requireLeads()
		require.Error(h, l.Err())
		h.advance(timeout)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
		require.Equal(h, leaderelection.Follower, c.Current().Role)
		require.Nil(h, c.Current().Leadership)
		require.ErrorIs(h, c.ElectLeader(), leaderelection.ErrCandidacyOver)
		_, err := c.multi()
		require.ErrorIs(h, err, leaderelection.ErrNotLeader)
		require.NoError(h, c.Resign())
		h.requireIDs(next.ID())
	})
}

// TN10, Kleppmann 2016, Jepsen etcd 3.4.3: a leader that was stopped goes on after
// another one has been elected, and writes. Here it has a lease far too long,
// which is as if it had just looked at the clock when it was stopped.
func TestTrap16_StoppedLeaderWrites(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.terms.overlap = true
		h.create("/register")
		conn := h.connect()
		handshake.Of(conn).Grant(time.Minute)
		c := h.join(conn, leaderelection.WithSessionTimeout(time.Minute))
		next := h.join(h.connect())
		old := c.requireLeads()
		h.advance(timeout)
		h.srv.Blackhole(zktest.BothWays, c.conn.SessionID())
		h.srv.Refuse(true)
		h.advance(2 * timeout)
		l := next.requireLeads()
		require.NoError(h, old.Err(), "the old leader must still believe")
		require.Greater(h, l.Token(), old.Token(), "what checks tokens refuses the old leader")
		late := async(func() error { return write(c, "too late") })
		h.advance(0)
		require.NoError(h, write(next, "new"))
		h.srv.Refuse(false)
		h.srv.Heal()
		h.advance(timeout)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
		require.ErrorIs(h, receive(h, late), leaderelection.ErrUnconfirmed)
		require.ErrorIs(h, write(c, "too late"), leaderelection.ErrNotLeader)
		data, stat, err := h.operator.Get("/register")
		require.NoError(h, err)
		require.Equal(h, "new", string(data))
		require.EqualValues(h, 1, stat.Version)
	})
}

// write is what only a leader may write.
func write(c *candidate, what string) error {
	_, err := c.multi(&zk.SetDataRequest{Path: "/register", Data: []byte(what), Version: -1})
	return err
}

// Kleppmann 2016, where the old leader's write is on its way while the other one
// is elected.
func TestTrap16_WriteUnderWay(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		h.create("/register")
		c, next := h.join(h.connect()), h.join(h.connect())
		old := c.requireLeads()
		h.srv.Blackhole(zktest.ToServer, c.conn.SessionID())
		late := async(func() error { return write(c, "too late") })
		h.advance(0)
		h.remove(c.ID())
		h.advance(shortTime)
		require.Greater(h, next.requireLeads().Token(), old.Token())
		h.srv.Heal(c.conn.SessionID())
		h.advance(0)
		require.ErrorIs(h, receive(h, late), leaderelection.ErrNotLeader)
		require.Zero(h, h.stat("/register").Version)
		h.advance(shortTime)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrCandidateDeleted)
	})
}

// The client library sends what was queued while there was no connection in the
// next session, as if nothing had happened.
func TestTrap16_WriteCarriedOutInTheNextSession(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		h.terms.overlap = true
		h.create("/register")
		conn := h.connect()
		handshake.Of(conn).Grant(time.Minute)
		c := h.join(conn, leaderelection.WithSessionTimeout(time.Minute))
		next := h.join(h.connect())
		old, session := c.requireLeads(), c.conn.SessionID()
		h.disconnect(c.conn)
		h.advance(2*timeout + shortTime)
		next.requireLeads()
		require.NoError(h, old.Err(), "the old leader must still believe")
		late := async(func() error { return write(c, "too late") })
		h.reconnect()
		h.advance(timeout)
		require.NotEqual(h, session, c.conn.SessionID())
		require.ErrorIs(h, receive(h, late), leaderelection.ErrNotLeader)
		require.Zero(h, h.stat("/register").Version)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
	})
}

// golang/go#24595: while a virtual machine is suspended the monotonic clock
// stands still, and a clock that is set back must not lengthen a lease either.
// The clocks of a bubble are one, so this is about real ones.
func TestTrap17_LeaseEndsByEitherClock(t *testing.T) {
	for name, deadline := range map[string]time.Time{
		"the monotonic clock stood still": byMonotonic(time.Now().Add(-time.Second), time.Hour),
		"the wall clock was set back":     byMonotonic(time.Now().Add(time.Hour), -2*time.Hour),
	} {
		l, _ := leaderelection.NewLeadership(1, func() time.Time { return deadline })
		require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired, name)
		<-l.Done()
	}
	l, _ := leaderelection.NewLeadership(1, func() time.Time { return byMonotonic(time.Now().Add(time.Hour), time.Hour) })
	require.NoError(t, l.Err())
}

// byMonotonic returns t with its monotonic reading moved by d: package time has no
// way to make a time whose clocks disagree.
func byMonotonic(t time.Time, d time.Duration) time.Time {
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	fields.ext += int64(d)
	return t
}

// kazoo's NonBlockingLease compares the clocks of two machines. Here the server's
// stands still, and then jumps, and nobody's lease depends on it.
func TestTrap23_NoClockButOnesOwn(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		c, next := h.join(h.connect()), h.join(h.connect())
		l := c.requireLeads()
		h.advance(10 * timeout)
		for range 5 {
			h.srv.Advance(timeout - time.Second)
			h.advance(timeout/2 + shortTime) // a ping comes
			require.WithinDuration(h, time.Now().Add(timeout/2), l.Deadline(), timeout/8+timeout/32)
		}
		require.NoError(h, l.Err())
		require.Len(h, next.received(), 1)
		h.srv.Blackhole(zktest.BothWays, c.conn.SessionID())
		left := time.Until(l.Deadline())
		h.advance(left)
		require.Equal(h, leaderelection.Suspended, c.newest().Role)
		require.Equal(h, time.Now(), c.newest().at)
		next.requireFollows(c)
		h.srv.Refuse(true)
		for range 2 { // the second client's pings come in between
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
