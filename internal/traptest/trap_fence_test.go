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
		do     func(w *world, c *candidate)
		reason error // of the leadership
		final  error // of the candidacy
	}{
		{"resigned", func(w *world, c *candidate) {
			require.NoError(w, c.Resign())
		}, leaderelection.ErrResigned, nil},
		{"znode deleted", func(w *world, c *candidate) {
			w.remove(c.ID())
		}, leaderelection.ErrCandidateDeleted, leaderelection.ErrCandidateDeleted},
		{"election over", func(w *world, c *candidate) {
			require.NoError(w, leaderelection.DeleteElection(w.operator, node))
		}, leaderelection.ErrCandidateDeleted, leaderelection.ErrElectionOver},
		{"election ended by the leader", func(w *world, c *candidate) {
			require.NoError(w, c.EndElection())
		}, leaderelection.ErrCandidateDeleted, leaderelection.ErrElectionOver},
		{"connection closed", func(_ *world, c *candidate) {
			c.conn.Close()
		}, leaderelection.ErrCandidateDeleted, leaderelection.ErrConnClosed},
	} {
		t.Run(end.name, func(t *testing.T) {
			play(t, 1, func(w *world) {
				c := w.enlist(w.connect())
				l := c.leads()
				told := async(func() time.Time { <-l.Done(); return time.Now() })
				w.pass(timeout / 3)
				begin := time.Now()
				end.do(w, c)
				w.pass(2 * moment)
				require.WithinDuration(w, begin, receive(w, told), moment)
				require.ErrorIs(w, l.Err(), end.reason)
				if end.final == nil {
					require.NoError(w, c.over())
				} else {
					require.ErrorIs(w, c.over(), end.final)
				}
				require.Equal(w, leaderelection.Follower, c.Current().Role)
			})
		})
	}
}

// InterProcessMutex keeps who holds it in the process, and goes on to say so
// after the session: here nothing says it.
func TestTrap15_NothingOfALostLeadershipIsLeft(t *testing.T) {
	play(t, 3, func(w *world) {
		c, next := w.enlist(w.connect()), w.enlist(w.connect())
		l := c.leads()
		w.expire(c.conn)
		w.pass(0)
		next.leads()
		require.Error(w, l.Err())
		w.pass(timeout)
		require.ErrorIs(w, c.over(), leaderelection.ErrSessionExpired)
		require.Equal(w, leaderelection.Follower, c.Current().Role)
		require.Nil(w, c.Current().Leadership)
		require.ErrorIs(w, c.ElectLeader(), leaderelection.ErrCandidacyOver)
		_, err := c.Multi()
		require.ErrorIs(w, err, leaderelection.ErrNotLeader)
		require.NoError(w, c.Resign())
		w.line(next.ID())
	})
}

// TN10, Kleppmann 2016, Jepsen etcd 3.4.3: a leader that was stopped goes on after
// another one has been elected, and writes. Here it has a lease far too long,
// which is as if it had just looked at the clock when it was stopped.
func TestTrap16_StoppedLeaderWrites(t *testing.T) {
	play(t, 1, func(w *world) {
		w.history.excused = true
		w.create("/register")
		conn := w.connect()
		handshake.Of(conn).Grant(time.Minute)
		c := w.enlist(conn, leaderelection.WithSessionTimeout(time.Minute))
		next := w.enlist(w.connect())
		old := c.leads()
		w.pass(timeout)
		w.srv.Blackhole(zktest.BothWays, c.conn.SessionID())
		w.srv.Refuse(true)
		w.pass(2 * timeout)
		l := next.leads()
		require.NoError(w, old.Err(), "the old leader must still believe")
		require.Greater(w, l.Token(), old.Token(), "what checks tokens refuses the old leader")
		late := async(func() error { return write(c, "too late") })
		w.pass(0)
		require.NoError(w, write(next, "new"))
		w.srv.Refuse(false)
		w.srv.Heal()
		w.pass(timeout)
		require.ErrorIs(w, c.over(), leaderelection.ErrSessionExpired)
		require.ErrorIs(w, receive(w, late), leaderelection.ErrUnconfirmed)
		require.ErrorIs(w, write(c, "too late"), leaderelection.ErrNotLeader)
		data, stat, err := w.operator.Get("/register")
		require.NoError(w, err)
		require.Equal(w, "new", string(data))
		require.EqualValues(w, 1, stat.Version)
	})
}

// write is what only a leader may write.
func write(c *candidate, what string) error {
	_, err := c.Multi(&zk.SetDataRequest{Path: "/register", Data: []byte(what), Version: -1})
	return err
}

// Kleppmann 2016, where the old leader's write is on its way while the other one
// is elected.
func TestTrap16_WriteUnderWay(t *testing.T) {
	play(t, 1, func(w *world) {
		w.create("/register")
		c, next := w.enlist(w.connect()), w.enlist(w.connect())
		old := c.leads()
		w.srv.Blackhole(zktest.ToServer, c.conn.SessionID())
		late := async(func() error { return write(c, "too late") })
		w.pass(0)
		w.remove(c.ID())
		w.pass(moment)
		require.Greater(w, next.leads().Token(), old.Token())
		w.srv.Heal(c.conn.SessionID())
		w.pass(0)
		require.ErrorIs(w, receive(w, late), leaderelection.ErrNotLeader)
		require.Zero(w, w.stat("/register").Version)
		w.pass(moment)
		require.ErrorIs(w, c.over(), leaderelection.ErrCandidateDeleted)
	})
}

// The client library sends what was queued while there was no connection in the
// next session, as if nothing had happened.
func TestTrap16_WriteCarriedOutInTheNextSession(t *testing.T) {
	play(t, 3, func(w *world) {
		w.history.excused = true
		w.create("/register")
		conn := w.connect()
		handshake.Of(conn).Grant(time.Minute)
		c := w.enlist(conn, leaderelection.WithSessionTimeout(time.Minute))
		next := w.enlist(w.connect())
		old, session := c.leads(), c.conn.SessionID()
		w.cut(c.conn)
		w.pass(2*timeout + moment)
		next.leads()
		require.NoError(w, old.Err(), "the old leader must still believe")
		late := async(func() error { return write(c, "too late") })
		w.restore()
		w.pass(timeout)
		require.NotEqual(w, session, c.conn.SessionID())
		require.ErrorIs(w, receive(w, late), leaderelection.ErrNotLeader)
		require.Zero(w, w.stat("/register").Version)
		require.ErrorIs(w, c.over(), leaderelection.ErrSessionExpired)
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
	play(t, 1, func(w *world) {
		c, next := w.enlist(w.connect()), w.enlist(w.connect())
		l := c.leads()
		w.pass(10 * timeout)
		for range 5 {
			w.srv.Advance(timeout - time.Second)
			w.pass(timeout/2 + moment) // a ping comes
			require.WithinDuration(w, time.Now().Add(timeout/2), l.Deadline(), timeout/8+timeout/32)
		}
		require.NoError(w, l.Err())
		require.Len(w, next.all(), 1)
		w.srv.Blackhole(zktest.BothWays, c.conn.SessionID())
		left := time.Until(l.Deadline())
		w.pass(left)
		require.Equal(w, leaderelection.Suspended, c.last().Role)
		require.Equal(w, time.Now(), c.last().at)
		next.follows(c)
		w.srv.Refuse(true)
		for range 2 { // the second client's pings come in between
			w.srv.Advance(timeout - time.Second)
			w.pass(timeout / 2)
		}
		next.leads()
		w.srv.Refuse(false)
		w.srv.Heal()
		w.pass(2 * timeout)
		require.ErrorIs(w, c.over(), leaderelection.ErrSessionExpired)
	}, zktest.WithManualClock())
}
