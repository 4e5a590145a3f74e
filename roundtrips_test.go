package leaderelection_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// These tests fail if a step of an election takes more requests, or more round trips that follow
// each other, than documented. The benchmarks report the same numbers. Tests of integrationtest
// count the requests to real servers.

const (
	electionNode   = "/election"
	sessionTimeout = 4 * time.Second
	leasePeriod    = sessionTimeout / 8 // between two checks
	standby        = 5 * sessionTimeout // longer than the next candidate keeps a lease in advance

	oneWay    = time.Millisecond
	roundTrip = 2 * oneWay
)

// costFixture is an election whose candidates have separate connections.
type costFixture struct {
	testing.TB
	srv     *zktest.Server
	timeout time.Duration // session timeout
}

type costCandidate struct {
	*leaderelection.Election
	conn *zk.Conn
	over chan struct{} // closed when ElectLeader has returned; nil before it was called
}

func newCostFixture(tb testing.TB) *costFixture {
	return &costFixture{TB: tb, srv: zktest.Start(tb), timeout: sessionTimeout}
}

// joinAll adds n candidates and returns them in the order of succession.
func (f *costFixture) joinAll(n int) []*costCandidate {
	f.Helper()
	all := make([]*costCandidate, n)
	for i := range all {
		all[i] = f.newCandidate(f.connect())
		f.join(all[i])
	}
	return all
}

func (f *costFixture) connect() *zk.Conn {
	f.Helper()
	conn, _, err := f.srv.Connect(f.timeout, zk.WithMaxBufferSize(64<<10)) // the default, 1.5 MB, is cleared for each connection
	require.NoError(f, err)
	return conn
}

// newCandidate creates a candidate that is not started.
func (f *costFixture) newCandidate(conn *zk.Conn) *costCandidate {
	return f.newCandidateAt(conn, electionNode)
}

func (f *costFixture) newCandidateAt(conn *zk.Conn, node string, options ...leaderelection.Option) *costCandidate {
	f.Helper()
	e, err := leaderelection.NewElection(conn, node, append(options,
		leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(f.timeout))...)
	require.NoError(f, err)
	return &costCandidate{Election: e, conn: conn}
}

// join starts a candidate and waits for its first status. The candidate resigns when the test ends.
func (f *costFixture) join(c *costCandidate) leaderelection.Status {
	f.Helper()
	f.start(c)
	f.Cleanup(func() { f.resign(c) })
	return f.awaitStatus(c)
}

func (f *costFixture) start(c *costCandidate) {
	c.over = make(chan struct{})
	go func() {
		defer close(c.over)
		_ = c.ElectLeader()
	}()
}

// awaitStatus waits for the next status of a candidate.
func (f *costFixture) awaitStatus(c *costCandidate) leaderelection.Status {
	f.Helper()
	s := <-c.Status()
	require.NoError(f, s.Err)
	return s
}

// awaitLeader waits until a candidate is the leader.
func (f *costFixture) awaitLeader(c *costCandidate) {
	f.Helper()
	for s := range c.Status() {
		require.NoError(f, s.Err)
		if s.Role == leaderelection.Leader {
			return
		}
	}
	require.Fail(f, "its candidacy is over")
}

// resign lets a candidate resign and waits until ElectLeader has returned.
func (f *costFixture) resign(c *costCandidate) {
	_ = c.Resign() // it is not confirmed if the session has expired
	<-c.over
}

// requests returns the requests since the log was reset, without the checks, which are sent
// periodically.
func (f *costFixture) requests() zktest.Log {
	return f.srv.Log().Requests().Filter(func(e zktest.Entry) bool { return !isCheck(e) })
}

// isCheck reports whether a request is a check of a lease. If each candidate has its own
// connection, it is a transaction of one operation; transactions that write have two.
func isCheck(e zktest.Entry) bool { return e.Op == zktest.OpMulti && e.Ops == 1 }

// idleRequests is requests of idle clients, without the verifications of watches every few minutes, but
// with the checks.
func (f *costFixture) idleRequests() zktest.Log {
	return f.srv.Log().Requests().Filter(func(e zktest.Entry) bool { return e.Op != zktest.OpExists })
}

// withLatency calls run in a bubble, with servers that have a latency.
func withLatency(t *testing.T, run func(f *costFixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newCostFixture(t)
		f.srv.Delay(zktest.BothWays, oneWay)
		run(f)
	})
}

// measure waits until all candidates are idle, calls do, and returns its duration in round trips.
// After that the log contains the requests that do has caused.
func (f *costFixture) measure(do func()) (roundTrips float64) {
	time.Sleep(10*leasePeriod + leasePeriod/2) // between two checks
	f.srv.ResetLog()
	start := time.Now()
	do()
	took := time.Since(start)
	time.Sleep(leasePeriod)
	return float64(took) / float64(roundTrip)
}

// requireRequests requires the number of requests of each candidate, and that no other client has
// sent any.
func (f *costFixture) requireRequests(want []int, all ...*costCandidate) {
	f.Helper()
	log := f.requests()
	got := make([]int, len(all))
	sum := 0
	for i, c := range all {
		got[i] = log.Session(c.conn.SessionID()).Count()
		sum += got[i]
	}
	require.Equal(f, want, got, "requests of each candidate\n%v", log)
	require.Equal(f, sum, log.Count(), "requests of other clients\n%v", log)
}

// TestWithCheckInterval_Checks fails if a leader sends more than 120 checks per minute, or 60 with
// the longest interval, if the next candidate still sends checks after some time, or if a leader
// that is cut off is suspended after more than half of the session timeout.
func TestWithCheckInterval_Checks(t *testing.T) {
	for _, x := range []struct {
		options     []leaderelection.Option
		least, most int
	}{
		{nil, 110, 120},
		{[]leaderelection.Option{leaderelection.WithCheckInterval(time.Hour)}, 49, 60},
	} {
		withLatency(t, func(f *costFixture) {
			leader, next := f.newCandidateAt(f.connect(), electionNode, x.options...), f.newCandidateAt(f.connect(), electionNode, x.options...)
			f.join(leader)
			f.join(next)
			time.Sleep(standby)
			f.srv.ResetLog()
			time.Sleep(time.Minute)
			checks := f.srv.Log().Requests().Filter(isCheck)
			n := checks.Session(leader.conn.SessionID()).Count()
			require.LessOrEqual(t, n, x.most)
			require.GreaterOrEqual(t, n, x.least)
			require.Zero(t, checks.Session(next.conn.SessionID()).Count())
			status := leader.Current()
			require.Equal(t, leaderelection.Leader, status.Role)
			start := time.Now()
			f.srv.Partition(leader.conn.SessionID())
			<-status.Leadership.Done()
			require.LessOrEqual(t, time.Since(start), sessionTimeout/2)
		})
	}
}

// TestRoundTrips_LateSuccession tests a candidate that has been next for long. It keeps no lease
// in advance, and requests one when the leader leaves.
func TestRoundTrips_LateSuccession(t *testing.T) {
	withLatency(t, func(f *costFixture) {
		all := f.joinAll(2)
		time.Sleep(standby)
		require.Equal(f, 2.0, f.measure(func() {
			go f.resign(all[0])
			f.awaitLeader(all[1])
		}), "more than the delete, the notification and a check")
	})
}

func TestRoundTrips_NewElection(t *testing.T) {
	withLatency(t, func(f *costFixture) {
		f.joinAll(1)
		conn := f.connect()
		_, _, err := conn.Exists("/") // waits for the session
		require.NoError(f, err)
		// A Sync, and after its reply the read: concurrent requests can arrive in any order.
		require.Equal(f, 2.0, f.measure(func() { f.newCandidate(conn) }))
		require.Equal(f, 2, f.requests().Count())
	})
}

func TestRoundTrips_Joining(t *testing.T) {
	for _, x := range []struct {
		ahead      int
		requests   int
		roundTrips float64
	}{
		{0, 3, 2}, // create; list, and watch its znode
		{1, 4, 3}, // and watch the predecessor
		{2, 5, 3}, // and watch the candidate before the predecessor
		{9, 5, 3},
	} {
		withLatency(t, func(f *costFixture) {
			f.joinAll(x.ahead)
			c := f.newCandidate(f.connect())
			var s leaderelection.Status
			require.Equal(f, x.roundTrips, f.measure(func() { s = f.join(c) }), "behind %d", x.ahead)
			require.Equal(f, x.ahead == 0, s.Role == leaderelection.Leader, "%v", s)
			f.requireRequests([]int{x.requests}, c)
		})
	}
}

// TestRoundTrips_WithACL tests that only a candidate whose ACL denies something reads the ACL of the
// election node, once for each connection.
func TestRoundTrips_WithACL(t *testing.T) {
	protected := leaderelection.WithACL(append(zk.DigestACL(zk.PermAll, "me", "secret"), zk.WorldACL(zk.PermRead)...))
	for _, x := range []struct {
		option        leaderelection.Option
		first, second int
	}{
		{leaderelection.WithACL(zk.WorldACL(zk.PermAll)), 3, 3},
		{protected, 4, 3},
	} {
		withLatency(t, func(f *costFixture) {
			f.resign(f.joinAll(1)[0])
			conn := f.connect()
			require.NoError(f, conn.AddAuth("digest", []byte("me:secret")))
			for _, want := range []int{x.first, x.second} {
				c := f.newCandidateAt(conn, electionNode, x.option)
				require.Equal(f, float64(want-1), f.measure(func() { f.join(c) }))
				f.requireRequests([]int{want}, c)
				f.resign(c)
			}
		})
	}
}

// TestRoundTrips_Succession tests that the successor becomes the leader without a request. The
// candidate after it lists the queue to find out that it is next, unless it has joined directly
// after the successor.
func TestRoundTrips_Succession(t *testing.T) {
	withLatency(t, func(f *costFixture) {
		all := f.joinAll(5)
		for i, want := range [][]int{
			{1, 0, 1, 0, 0}, // delete; list
			{0, 1, 0, 1, 0},
			{0, 0, 1, 0, 1},
			{0, 0, 0, 1, 0},
		} {
			require.Equal(f, 1.0, f.measure(func() {
				go f.resign(all[i])
				f.awaitLeader(all[i+1])
			}), "more than the delete and the notification")
			f.requireRequests(want, all...)
		}
	})
}

// TestRoundTrips_SuccessionByExpiry tests that the successor needs only the notification when the
// session of the leader expires.
func TestRoundTrips_SuccessionByExpiry(t *testing.T) {
	withLatency(t, func(f *costFixture) {
		all := f.joinAll(4)
		session := all[0].conn.SessionID()
		require.Equal(f, 0.5, f.measure(func() {
			require.NoError(f, f.srv.ExpireSession(session))
			f.awaitLeader(all[1])
		}))
		f.requireRequests([]int{0, 1, 0}, all[1:]...)
	})
}

// TestRoundTrips_SuccessionUnverified tests that a candidate lists the queue if the two candidates
// before it leave at the same time, because it could not know that it is next.
func TestRoundTrips_SuccessionUnverified(t *testing.T) {
	withLatency(t, func(f *costFixture) {
		all := f.joinAll(4)
		sessions := []int64{all[0].conn.SessionID(), all[1].conn.SessionID()}
		require.Equal(f, 1.5, f.measure(func() {
			for _, id := range sessions {
				require.NoError(f, f.srv.ExpireSession(id))
			}
			f.awaitLeader(all[2])
		}))
		f.requireRequests([]int{1, 1}, all[2:]...)
	})
}

func TestRoundTrips_Resigning(t *testing.T) {
	for _, x := range []struct {
		candidates, resigns int
		want                []int
	}{
		{1, 0, []int{1}},
		{3, 2, []int{0, 0, 1}},
		// The next two candidates list, and read a candidate that they did not watch. No other
		// candidate is woken.
		{5, 2, []int{0, 0, 1, 2, 2}},
		{5, 1, []int{0, 1, 1, 2, 0}},
	} {
		withLatency(t, func(f *costFixture) {
			all := f.joinAll(x.candidates)
			require.Equal(f, 1.0, f.measure(func() { require.NoError(f, all[x.resigns].Resign()) }), "%d of %d", x.resigns, x.candidates)
			f.requireRequests(x.want, all...)
		})
	}
}

// TestRoundTrips_Idle tests that the leader sends one request per period, and the other candidates
// none after some time but the verifications of their watches.
func TestRoundTrips_Idle(t *testing.T) {
	const periods = 100
	synctest.Test(t, func(t *testing.T) {
		f := newCostFixture(t)
		all := f.joinAll(4)
		time.Sleep(standby)
		f.measure(func() { time.Sleep((periods - 1) * leasePeriod) })
		for i, want := range []int{periods, 0, 0, 0} {
			require.Equal(f, want, f.idleRequests().Session(all[i].conn.SessionID()).Count(), "candidate %d", i)
		}
	})
}

// TestRoundTrips_SharedConnection fails if more than one request per period is needed to extend the
// leases of all candidates of a connection.
func TestRoundTrips_SharedConnection(t *testing.T) {
	const periods, elections = 100, 20
	synctest.Test(t, func(t *testing.T) {
		f := newCostFixture(t)
		conn := f.connect()
		for i := range elections {
			for range 3 {
				f.join(f.newCandidateAt(conn, fmt.Sprintf("/election-%d", i)))
			}
		}
		time.Sleep(standby)
		f.measure(func() { time.Sleep((periods - 1) * leasePeriod) })
		log := f.idleRequests()
		require.Equal(f, periods, log.Count(), "%v", log)
		require.Equal(f, periods, log.Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpMulti && e.Ops == elections }).Count())
	})
}

// TestRoundTrips_PersistentChildren fails if a candidate that joins an election node with thousands of
// persistent children that are named like candidates lists the node for each of them, or reads them one
// after the other, or if Observe reads them one after the other.
func TestRoundTrips_PersistentChildren(t *testing.T) {
	const children = 4000
	for prefix, listings := range map[string]int{"_c_*-n_": 2, "job-": 3} {
		withLatency(t, func(f *costFixture) {
			connect := func() *zk.Conn { // a listing is larger than the buffer of the other tests
				conn, _, err := f.srv.Connect(f.timeout)
				require.NoError(f, err)
				return conn
			}
			setup := connect()
			_, err := setup.Create(electionNode, nil, 0, openACL)
			require.NoError(f, err)
			for range children / 500 {
				ops := make([]any, 500)
				for i := range ops {
					ops[i] = &zk.CreateRequest{Path: electionNode + "/job-", Acl: openACL, Flags: zk.FlagSequence}
				}
				_, err := setup.Multi(ops...)
				require.NoError(f, err)
			}
			c := f.newCandidateAt(connect(), electionNode, leaderelection.WithNamePrefix(prefix))
			require.Less(f, f.measure(func() {
				f.start(c)
				f.awaitLeader(c)
			}), 100.0)
			log := f.requests()
			lists := log.Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpGetChildren2 && e.Path == electionNode })
			require.Equal(f, listings, lists.Count(), "%s", prefix)
			require.Less(f, log.Count(), children+20)

			ctx, cancel := context.WithCancel(f.Context())
			require.Less(f, f.measure(func() {
				found, err := leaderelection.Observe(ctx, connect(), electionNode)
				require.NoError(f, err)
				require.Equal(f, c.ID(), (<-found).Leader.ID)
			}), 100.0)
			cancel()
			f.resign(c)
		})
	}
}

// The benchmarks use in-memory connections, so their times are those of the library and of zktest.
// On a network, the numbers of requests and round trips determine the time.

// benchmark repeats a step. step calls measure with the part that is measured, and returns the
// number of requests that it has caused. The round trips are those of the fastest of some steps
// with a latency.
func (f *costFixture) benchmark(b *testing.B, name string, step func(measure func(do func())) (requests int)) {
	requests := 0
	for b.Loop() {
		b.StopTimer()
		requests += step(func(do func()) {
			b.StartTimer()
			do()
			b.StopTimer()
		})
		b.StartTimer()
	}
	b.ReportMetric(float64(requests)/float64(b.N), "requests/"+name)

	const oneWay = 10 * time.Millisecond // of real time; everything else takes less
	f.srv.Delay(zktest.BothWays, oneWay)
	least := time.Duration(math.MaxInt64)
	for range 5 {
		step(func(do func()) {
			start := time.Now()
			do()
			least = min(least, time.Since(start))
		})
	}
	b.ReportMetric(float64(least/(2*oneWay)), "roundtrips/"+name)
}

// BenchmarkJoin joins an election without candidates, directly after its leader, and after nine
// candidates.
func BenchmarkJoin(b *testing.B) {
	for _, x := range []struct {
		name  string
		ahead int
	}{{"free", 0}, {"second", 1}, {"tenth", 9}} {
		b.Run(x.name, func(b *testing.B) {
			f := newCostFixture(b)
			f.joinAll(x.ahead)
			conn := f.connect()
			f.benchmark(b, "join", func(measure func(do func())) int {
				c := f.newCandidate(conn)
				defer f.resign(c)
				f.srv.ResetLog()
				measure(func() {
					f.start(c)
					f.awaitStatus(c)
				})
				return f.requests().Session(conn.SessionID()).Count()
			})
		})
	}
}

// BenchmarkSuccession measures the time from the resignation of the leader of three candidates
// until the next one is the leader. The requests are those of all three candidates, until they are
// idle again.
func BenchmarkSuccession(b *testing.B) {
	f := newCostFixture(b)
	all := f.joinAll(3)
	f.benchmark(b, "succession", func(measure func(do func())) int {
		first := all[0]
		f.srv.ResetLog()
		measure(func() {
			go f.resign(first)
			f.awaitLeader(all[1])
		})
		requests := f.awaitListing(all[2]).Count()
		<-first.over
		again := f.newCandidate(first.conn)
		f.join(again)
		all = append(all[1:], again)
		return requests
	})
}

// awaitListing waits until the third candidate has listed the queue, and so knows that it is the
// second now. It returns the requests until then.
func (f *costFixture) awaitListing(c *costCandidate) zktest.Log {
	f.Helper()
	for end := time.Now().Add(sessionTimeout); ; time.Sleep(20 * time.Microsecond) {
		log := f.requests()
		if log.Session(c.conn.SessionID()).Count(zktest.OpGetChildren2) > 0 {
			return log
		}
		require.True(f, time.Now().Before(end), "it has not listed the queue\n%v", log)
	}
}

// BenchmarkResign measures the resignation of a leader without followers, and of the last of four
// candidates.
func BenchmarkResign(b *testing.B) {
	for _, x := range []struct {
		name  string
		ahead int
	}{{"leader", 0}, {"last", 3}} {
		b.Run(x.name, func(b *testing.B) {
			f := newCostFixture(b)
			f.joinAll(x.ahead)
			conn := f.connect()
			f.benchmark(b, "resign", func(measure func(do func())) int {
				c := f.newCandidate(conn)
				f.start(c)
				f.awaitStatus(c)
				f.srv.ResetLog()
				measure(func() { _ = c.Resign() })
				<-c.over
				return f.requests().Count()
			})
		})
	}
}

// BenchmarkIdle counts the requests of a leader and three idle followers per period of the checks.
func BenchmarkIdle(b *testing.B) {
	f := newCostFixture(b)
	f.timeout = 800 * time.Millisecond
	period := f.timeout / 8
	f.joinAll(4)
	f.srv.ResetLog()
	start := time.Now()
	for b.Loop() {
		time.Sleep(period)
	}
	periods := float64(time.Since(start)) / float64(period)
	b.ReportMetric(float64(f.srv.Log().Requests().Count())/periods, "requests/period")
}
