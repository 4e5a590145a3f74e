package leaderelection_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// These tests know how many requests each turn of an election costs today, and how
// many round trips are waited for, one after the other; the benchmarks beside them
// show the same numbers. A change that costs more has to change them here. That a
// real server is asked no more is in integrationtest.

const (
	electionNode   = "/election"
	sessionTimeout = 4 * time.Second
	leasePeriod    = sessionTimeout / 8 // of the checks that prove leases
	standby        = 5 * sessionTimeout // longer than the next candidate keeps a lease in advance

	oneWay    = time.Millisecond
	roundTrip = 2 * oneWay
)

// line is an election whose candidates have a connection each.
type line struct {
	testing.TB
	srv     *zktest.Server
	timeout time.Duration // of sessions
}

type contender struct {
	*leaderelection.Election
	conn *zk.Conn
	over chan struct{} // closed when ElectLeader has returned; nil before it was called
}

func newLine(tb testing.TB) *line {
	return &line{TB: tb, srv: zktest.Start(tb), timeout: sessionTimeout}
}

// stand has n candidates stand in line, in this order.
func (l *line) stand(n int) []*contender {
	l.Helper()
	all := make([]*contender, n)
	for i := range all {
		all[i] = l.enlist(l.connect())
		l.join(all[i])
	}
	return all
}

func (l *line) connect() *zk.Conn {
	l.Helper()
	conn, _, err := l.srv.Connect(l.timeout, zk.WithMaxBufferSize(64<<10)) // by default 1.5 MB, cleared each time
	require.NoError(l, err)
	return conn
}

// enlist makes a candidate that does not take part yet.
func (l *line) enlist(conn *zk.Conn) *contender { return l.enlistAt(conn, electionNode) }

func (l *line) enlistAt(conn *zk.Conn, node string, options ...leaderelection.Option) *contender {
	l.Helper()
	e, err := leaderelection.NewElection(conn, node, append(options,
		leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(l.timeout))...)
	require.NoError(l, err)
	return &contender{Election: e, conn: conn}
}

// join has c take part and waits until it knows its place. It resigns at the end.
func (l *line) join(c *contender) leaderelection.Status {
	l.Helper()
	l.start(c)
	l.Cleanup(func() { l.resign(c) })
	return l.placed(c)
}

func (l *line) start(c *contender) {
	c.over = make(chan struct{})
	go func() {
		defer close(c.over)
		_ = c.ElectLeader()
	}()
}

// placed waits until c knows its place.
func (l *line) placed(c *contender) leaderelection.Status {
	l.Helper()
	s := <-c.Status()
	require.NoError(l, s.Err)
	return s
}

// leads waits until c leads.
func (l *line) leads(c *contender) {
	l.Helper()
	for s := range c.Status() {
		require.NoError(l, s.Err)
		if s.Role == leaderelection.Leader {
			return
		}
	}
	require.Fail(l, "its candidacy is over")
}

// resign has c resign, and waits until nothing of it runs any more.
func (l *line) resign(c *contender) {
	_ = c.Resign() // of one whose session was ended there is nothing to confirm
	<-c.over
}

// requests lists what was asked since the log was reset, without the checks that
// prove leases: they come with time, not with what happens.
func (l *line) requests() zktest.Log {
	return l.srv.Log().Requests().Filter(func(e zktest.Entry) bool { return !isCheck(e) })
}

// isCheck tells the transactions that prove a lease: with a connection for each
// candidate they have one part. Those that write something have two.
func isCheck(e zktest.Entry) bool { return e.Op == zktest.OpMulti && e.Ops == 1 }

// inSlowLine plays f in a bubble.
func inSlowLine(t *testing.T, f func(l *line)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		l.srv.Delay(zktest.BothWays, oneWay)
		f(l)
	})
}

// cost lets everything come to rest, does something, and returns how many round
// trips long that took. The log then has what it has led to.
func (l *line) cost(do func()) (roundTrips float64) {
	time.Sleep(10*leasePeriod + leasePeriod/2) // not at the moment of a check
	l.srv.ResetLog()
	start := time.Now()
	do()
	took := time.Since(start)
	time.Sleep(leasePeriod)
	return float64(took) / float64(roundTrip)
}

// asked requires how many requests each of all has sent, and that nobody else has
// sent any.
func (l *line) asked(want []int, all ...*contender) {
	l.Helper()
	log := l.requests()
	got := make([]int, len(all))
	sum := 0
	for i, c := range all {
		got[i] = log.Session(c.conn.SessionID()).Count()
		sum += got[i]
	}
	require.Equal(l, want, got, "requests of each candidate\n%v", log)
	require.Equal(l, sum, log.Count(), "somebody else asked something\n%v", log)
}

// A leader sends 120 checks a minute, and with the longest interval at most 60. The next
// candidate sends none after some time. A leader that is cut off is suspended after at most half a
// session timeout.
func TestCheckInterval(t *testing.T) {
	for _, x := range []struct {
		options     []leaderelection.Option
		least, most int
	}{
		{nil, 110, 120},
		{[]leaderelection.Option{leaderelection.WithCheckInterval(time.Hour)}, 49, 60},
	} {
		inSlowLine(t, func(l *line) {
			leader, next := l.enlistAt(l.connect(), electionNode, x.options...), l.enlistAt(l.connect(), electionNode, x.options...)
			l.join(leader)
			l.join(next)
			time.Sleep(standby)
			l.srv.ResetLog()
			time.Sleep(time.Minute)
			checks := l.srv.Log().Requests().Filter(isCheck)
			n := checks.Session(leader.conn.SessionID()).Count()
			require.LessOrEqual(t, n, x.most)
			require.GreaterOrEqual(t, n, x.least)
			require.Zero(t, checks.Session(next.conn.SessionID()).Count())
			is := leader.Current()
			require.Equal(t, leaderelection.Leader, is.Role)
			cut := time.Now()
			l.srv.Partition(leader.conn.SessionID())
			<-is.Leadership.Done()
			require.LessOrEqual(t, time.Since(cut), sessionTimeout/2)
		})
	}
}

// TestRoundTripsOfALateSuccession: a candidate that has been next for long keeps no lease in
// advance. It requests one when the leader leaves.
func TestRoundTripsOfALateSuccession(t *testing.T) {
	inSlowLine(t, func(l *line) {
		all := l.stand(2)
		time.Sleep(standby)
		require.Equal(l, 2.0, l.cost(func() {
			go l.resign(all[0])
			l.leads(all[1])
		}), "the deletion, the event, and a check")
	})
}

func TestRoundTripsOfNewElection(t *testing.T) {
	inSlowLine(t, func(l *line) {
		l.stand(1)
		conn := l.connect()
		_, _, err := conn.Exists("/") // it has a session
		require.NoError(l, err)
		// A Sync, and then the read: sent side by side they may arrive in any order.
		require.Equal(l, 2.0, l.cost(func() { l.enlist(conn) }))
		require.Equal(l, 2, l.requests().Count())
	})
}

func TestRoundTripsOfJoining(t *testing.T) {
	for _, x := range []struct {
		ahead      int
		requests   int
		roundTrips float64
	}{
		{0, 3, 2}, // create; list, and read and watch the own znode
		{1, 4, 3}, // and the predecessor
		{2, 5, 3}, // and the candidate before it
		{9, 5, 3},
	} {
		inSlowLine(t, func(l *line) {
			l.stand(x.ahead)
			c := l.enlist(l.connect())
			var s leaderelection.Status
			require.Equal(l, x.roundTrips, l.cost(func() { s = l.join(c) }), "behind %d", x.ahead)
			require.Equal(l, x.ahead == 0, s.Role == leaderelection.Leader, "%v", s)
			l.asked([]int{x.requests}, c)
		})
	}
}

// TestRoundTripsOfSuccession: the successor sends no request. The candidate behind it lists the
// queue, if it did not join directly behind the successor, to know that it is next.
func TestRoundTripsOfSuccession(t *testing.T) {
	inSlowLine(t, func(l *line) {
		all := l.stand(5)
		for i, want := range [][]int{
			{1, 0, 1, 0, 0}, // delete; list
			{0, 1, 0, 1, 0},
			{0, 0, 1, 0, 1},
			{0, 0, 0, 1, 0},
		} {
			require.Equal(l, 1.0, l.cost(func() {
				go l.resign(all[i])
				l.leads(all[i+1])
			}), "the deletion, and the event")
			l.asked(want, all...)
		}
	})
}

// TestRoundTripsOfSuccessionByExpiry: the event is on its way when the session ends.
func TestRoundTripsOfSuccessionByExpiry(t *testing.T) {
	inSlowLine(t, func(l *line) {
		all := l.stand(4)
		session := all[0].conn.SessionID()
		require.Equal(l, 0.5, l.cost(func() {
			require.NoError(l, l.srv.ExpireSession(session))
			l.leads(all[1])
		}))
		l.asked([]int{0, 1, 0}, all[1:]...)
	})
}

// TestRoundTripsOfSuccessionUnverified: when the two ahead go at once, the one that
// follows could not know that it is next, and lists.
func TestRoundTripsOfSuccessionUnverified(t *testing.T) {
	inSlowLine(t, func(l *line) {
		all := l.stand(4)
		sessions := []int64{all[0].conn.SessionID(), all[1].conn.SessionID()}
		require.Equal(l, 1.5, l.cost(func() {
			for _, id := range sessions {
				require.NoError(l, l.srv.ExpireSession(id))
			}
			l.leads(all[2])
		}))
		l.asked([]int{1, 1}, all[2:]...)
	})
}

func TestRoundTripsOfResigning(t *testing.T) {
	for _, x := range []struct {
		line, who int
		want      []int
	}{
		{1, 0, []int{1}},
		{3, 2, []int{0, 0, 1}},
		// The next two candidates list, and read a candidate that they did not watch. No other
		// candidate is woken.
		{5, 2, []int{0, 0, 1, 2, 2}},
		{5, 1, []int{0, 1, 1, 2, 0}},
	} {
		inSlowLine(t, func(l *line) {
			all := l.stand(x.line)
			require.Equal(l, 1.0, l.cost(func() { require.NoError(l, all[x.who].Resign()) }), "%d of %d", x.who, x.line)
			l.asked(x.want, all...)
		})
	}
}

// TestRoundTripsAtRest: the leader sends one request a period, and the others none after some
// time.
func TestRoundTripsAtRest(t *testing.T) {
	const periods = 100
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		all := l.stand(4)
		time.Sleep(standby)
		l.cost(func() { time.Sleep((periods - 1) * leasePeriod) })
		l.asked([]int{0, 0, 0, 0}, all...)
		for i, want := range []int{periods, 0, 0, 0} {
			require.Equal(l, want, l.srv.Log().Requests().Session(all[i].conn.SessionID()).Count(), "candidate %d", i)
		}
	})
}

// TestRoundTripsOfSharing: however many candidates share a connection, one request a
// period proves their leases.
func TestRoundTripsOfSharing(t *testing.T) {
	const periods, elections = 100, 20
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		conn := l.connect()
		for i := range elections {
			for range 3 {
				l.join(l.enlistAt(conn, fmt.Sprintf("/election-%d", i)))
			}
		}
		time.Sleep(standby)
		l.cost(func() { time.Sleep((periods - 1) * leasePeriod) })
		log := l.srv.Log().Requests()
		require.Equal(l, periods, log.Count(), "%v", log)
		require.Equal(l, periods, log.Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpMulti && e.Ops == elections }).Count())
	})
}
