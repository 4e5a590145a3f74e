package leaderelection_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// The tests in this file fail if a step of an election takes more requests, or more sequential round
// trips, than documented. The tests of integrationtest count the requests to real servers.

const (
	leasePeriod = timeout / 8 // the time between two checks
	standby     = 5 * timeout // longer than the time for which the next candidate keeps a lease in advance

	oneWay    = time.Millisecond
	roundTrip = 2 * oneWay
)

// connectAsync opens a session and does not wait for it.
func (h *harness) connectAsync(options ...func(*zk.Conn)) *zk.Conn {
	h.Helper()
	conn, _, err := h.ensemble.ConnectFrom(0, timeout, options...)
	require.NoError(h, err)
	return conn
}

// joinAll adds n candidates on separate connections and returns them in the order of succession.
func (h *harness) joinAll(n int) []*candidate {
	h.Helper()
	all := make([]*candidate, n)
	for i := range all {
		// The client clears its buffer for each connection, and the default is 1.5 MB.
		all[i] = h.newCandidate(node, h.connectAsync(zk.WithMaxBufferSize(64<<10)))
		all[i].startAndAwaitStatus()
	}
	return all
}

// writesAndReads returns the requests since the log was reset, except the periodic checks.
func (h *harness) writesAndReads() zktest.Log {
	return h.srv.Log().Requests().Filter(func(e zktest.Entry) bool { return !isCheck(e) })
}

// isCheck reports whether a request is a check of a lease. If each candidate has its own connection, a check
// is a transaction of one operation; transactions that write have two.
func isCheck(e zktest.Entry) bool { return e.Op == zktest.OpMulti && e.Ops == 1 }

// idleRequests returns the requests of idle clients since the log was reset, including checks, but without
// the reads every few minutes that verify watches.
func (h *harness) idleRequests() zktest.Log {
	return h.srv.Log().Requests().Filter(func(e zktest.Entry) bool { return e.Op != zktest.OpExists })
}

// withLatency runs withServers with one server that has a latency.
func withLatency(t *testing.T, f func(h *harness)) {
	t.Helper()
	withServers(t, 1, func(h *harness) {
		h.srv.Delay(zktest.BothWays, oneWay)
		f(h)
	})
}

// measureRoundTrips waits until all candidates are idle, calls do, and returns the duration of do in round trips.
// Afterwards the log contains the requests that do has caused.
func (h *harness) measureRoundTrips(do func()) (roundTrips float64) {
	time.Sleep(10*leasePeriod + leasePeriod/2) // lets do begin between two checks
	h.srv.ResetLog()
	start := time.Now()
	do()
	took := time.Since(start)
	time.Sleep(leasePeriod)
	return float64(took) / float64(roundTrip)
}

// requireRequests requires that each candidate has sent as many requests as want says, and that no other
// client has sent any.
func (h *harness) requireRequests(want []int, all ...*candidate) {
	h.Helper()
	log := h.writesAndReads()
	got := make([]int, len(all))
	sum := 0
	for i, c := range all {
		got[i] = log.Session(c.conn.SessionID()).Count()
		sum += got[i]
	}
	require.Equal(h, want, got, "requests of each candidate\n%v", log)
	require.Equal(h, sum, log.Count(), "requests of other clients\n%v", log)
}

// TestWithCheckInterval_LimitsChecks checks that a leader sends at most 60 checks per minute with the longest
// interval, that the next candidate sends no checks after some time, and that a leader that is cut off is
// suspended after at most half of the session timeout.
func TestWithCheckInterval_LimitsChecks(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		rarely := leaderelection.WithCheckInterval(time.Hour)
		leader, next := h.join(h.connect(), rarely), h.join(h.connect(), rarely)
		time.Sleep(standby)
		h.srv.ResetLog()
		time.Sleep(time.Minute)
		checks := h.srv.Log().Requests().Filter(isCheck)
		require.InDelta(h, 55, checks.Session(leader.conn.SessionID()).Count(), 5)
		require.Zero(h, checks.Session(next.conn.SessionID()).Count())
		leadership := leader.requireLeads()
		start := time.Now()
		h.srv.Partition(leader.conn.SessionID())
		<-leadership.Done()
		require.LessOrEqual(h, time.Since(start), timeout/2)
	})
}

// TestRoundTrips_LateSuccessionNeedsOneCheck checks that a candidate that has been next for a long time, and
// keeps no lease in advance, needs only a check when the leader leaves.
func TestRoundTrips_LateSuccessionNeedsOneCheck(t *testing.T) {
	withLatency(t, func(h *harness) {
		all := h.joinAll(2)
		time.Sleep(standby)
		require.Equal(h, 2.0, h.measureRoundTrips(func() {
			go all[0].Resign()
			all[1].awaitLeader()
		}), "more than the delete, the notification and a check")
	})
}

// TestRoundTrips_NewElectionSendsOneRequest checks that NewElection takes one round trip and one request, as
// documented.
func TestRoundTrips_NewElectionSendsOneRequest(t *testing.T) {
	withLatency(t, func(h *harness) {
		h.joinAll(1)
		conn := h.connectAsync()
		_, _, err := conn.Exists("/") // waits for the session
		require.NoError(h, err)
		require.Equal(h, 1.0, h.measureRoundTrips(func() { h.newCandidate(node, conn) }))
		require.Equal(h, 1, h.writesAndReads().Count())
	})
}

// TestRoundTrips_JoiningTakesAtMostThree checks that joining takes one round trip for the first candidate and
// three for others, with the documented number of requests.
func TestRoundTrips_JoiningTakesAtMostThree(t *testing.T) {
	for _, x := range []struct {
		ahead      int
		requests   int
		roundTrips float64
	}{
		{0, 2, 1}, // create the znode, watch it
		{1, 4, 3}, // create the znode, watch it, list the queue, watch the predecessor
		{2, 5, 3}, // as before, and watch the candidate before the predecessor
		{9, 5, 3},
		{12, 5, 3}, // the watch of the candidate before the predecessor follows after 60 ms
	} {
		withLatency(t, func(h *harness) {
			h.joinAll(x.ahead)
			c := h.newCandidate(node, h.connectAsync())
			var s leaderelection.Status
			require.Equal(h, x.roundTrips, h.measureRoundTrips(func() { s = c.startAndAwaitStatus() }), "behind %d", x.ahead)
			require.Equal(h, x.ahead == 0, s.Role == leaderelection.Leader, "%v", s)
			h.requireRequests([]int{x.requests}, c)
		})
	}
}

// TestRoundTrips_WithACLReadsNodeACLOnce checks that candidates with WithACL read the ACL of the election node
// once for each connection, and do not read it if the ACL of WithACL grants all permissions to all clients.
func TestRoundTrips_WithACLReadsNodeACLOnce(t *testing.T) {
	protected := leaderelection.WithACL(append(zk.DigestACL(zk.PermAll, "me", "secret"), zk.WorldACL(zk.PermRead)...))
	for _, x := range []struct {
		option        leaderelection.Option
		first, second int
	}{
		{leaderelection.WithACL(zk.WorldACL(zk.PermAll)), 2, 2},
		{protected, 3, 2},
	} {
		withLatency(t, func(h *harness) {
			h.joinAll(1)[0].resign()
			conn := h.connectAsync()
			require.NoError(h, conn.AddAuth("digest", []byte("me:secret")))
			for _, want := range []int{x.first, x.second} {
				c := h.newCandidate(node, conn, x.option)
				require.Equal(h, float64(want-1), h.measureRoundTrips(func() { c.startAndAwaitStatus() }))
				h.requireRequests([]int{want}, c)
				c.resign()
			}
		})
	}
}

// TestRoundTrips_SuccessionNeedsNoRequest checks that the successor needs no request to become the leader. The
// candidate behind it may list the queue to find out that it is next, unless it has joined directly after the
// successor.
func TestRoundTrips_SuccessionNeedsNoRequest(t *testing.T) {
	withLatency(t, func(h *harness) {
		all := h.joinAll(5)
		for i, want := range [][]int{
			{1, 0, 1, 0, 0}, // the leader sends a delete, and the candidate behind the successor a listing
			{0, 1, 0, 1, 0},
			{0, 0, 1, 0, 1},
			{0, 0, 0, 1, 0},
		} {
			require.Equal(h, 1.0, h.measureRoundTrips(func() {
				go all[i].Resign()
				all[i+1].awaitLeader()
			}), "more than the delete and the notification")
			h.requireRequests(want, all...)
		}
	})
}

// TestRoundTrips_SuccessionByExpiryNeedsNoRequest checks that the successor needs no request when the session
// of the leader expires.
func TestRoundTrips_SuccessionByExpiryNeedsNoRequest(t *testing.T) {
	withLatency(t, func(h *harness) {
		all := h.joinAll(4)
		session := all[0].conn.SessionID()
		require.Equal(h, 0.5, h.measureRoundTrips(func() {
			require.NoError(h, h.srv.ExpireSession(session))
			all[1].awaitLeader()
		}))
		h.requireRequests([]int{0, 1, 0}, all[1:]...)
	})
}

// TestRoundTrips_ListsQueueIfTwoPredecessorsLeave checks that a candidate lists the queue if the two candidates
// ahead of it leave at the same time, because it cannot know otherwise that it is the first.
func TestRoundTrips_ListsQueueIfTwoPredecessorsLeave(t *testing.T) {
	withLatency(t, func(h *harness) {
		all := h.joinAll(4)
		sessions := []int64{all[0].conn.SessionID(), all[1].conn.SessionID()}
		require.Equal(h, 1.5, h.measureRoundTrips(func() {
			for _, id := range sessions {
				require.NoError(h, h.srv.ExpireSession(id))
			}
			all[2].awaitLeader()
		}))
		h.requireRequests([]int{1, 1}, all[2:]...)
	})
}

// TestRoundTrips_ResigningTakesOne checks that Resign takes one round trip, and that the resignation causes no
// more requests of other candidates than documented.
func TestRoundTrips_ResigningTakesOne(t *testing.T) {
	for _, x := range []struct {
		candidates, resigns int
		want                []int
	}{
		{1, 0, []int{1}},
		{3, 2, []int{0, 0, 1}},
		// The next two candidates list the queue, and read a candidate that they have not watched before. No
		// other candidate is woken.
		{5, 2, []int{0, 0, 1, 2, 2}},
		{5, 1, []int{0, 1, 1, 2, 0}},
	} {
		withLatency(t, func(h *harness) {
			all := h.joinAll(x.candidates)
			require.Equal(h, 1.0, h.measureRoundTrips(func() { require.NoError(h, all[x.resigns].Resign()) }), "%d of %d", x.resigns, x.candidates)
			h.requireRequests(x.want, all...)
		})
	}
}

// TestRoundTrips_LeaderSendsOneRequestPerPeriod checks that the leader sends at most one request per lease
// period, and that other candidates send nothing after some time, except the reads that verify their watches.
func TestRoundTrips_LeaderSendsOneRequestPerPeriod(t *testing.T) {
	const periods = 100
	withServers(t, 1, func(h *harness) {
		all := h.joinAll(4)
		time.Sleep(standby)
		h.measureRoundTrips(func() { time.Sleep((periods - 1) * leasePeriod) })
		for i, want := range []int{periods, 0, 0, 0} {
			require.Equal(h, want, h.idleRequests().Session(all[i].conn.SessionID()).Count(), "candidate %d", i)
		}
	})
}

// TestRoundTrips_OneCheckServesSharedConnection checks that one request per lease period extends the leases of
// all candidates of a connection.
func TestRoundTrips_OneCheckServesSharedConnection(t *testing.T) {
	const periods, elections = 100, 20
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		for i := range elections {
			for range 3 {
				h.newCandidate(fmt.Sprintf("/election-%d", i), conn, leaderelection.WithCreateNode()).startAndAwaitStatus()
			}
		}
		time.Sleep(standby)
		h.measureRoundTrips(func() { time.Sleep((periods - 1) * leasePeriod) })
		log := h.idleRequests()
		require.Equal(h, periods, log.Count(), "%v", log)
		require.Equal(h, periods, log.Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpMulti && e.Ops == elections }).Count())
	})
}

// TestRoundTrips_ReadsPersistentChildrenConcurrently checks that a candidate and Observe need few round trips
// if the election node has thousands of persistent children that are named like candidates, and that a
// candidate does not list the node for each of these children.
func TestRoundTrips_ReadsPersistentChildrenConcurrently(t *testing.T) {
	const children = 4000
	for prefix, listings := range map[string]int{"_c_*-n_": 2, "job-": 3} {
		withLatency(t, func(h *harness) {
			for range children / 500 {
				ops := make([]any, 500)
				for i := range ops {
					ops[i] = &zk.CreateRequest{Path: node + "/job-", Acl: openACL, Flags: zk.FlagSequence}
				}
				_, err := h.operator.Multi(ops...)
				require.NoError(h, err)
			}
			c := h.newCandidate(node, h.connectAsync(), leaderelection.WithNamePrefix(prefix))
			require.Less(h, h.measureRoundTrips(func() {
				c.start()
				c.awaitLeader()
			}), 100.0)
			log := h.writesAndReads()
			lists := log.Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpGetChildren2 && e.Path == node })
			require.Equal(h, listings, lists.Count(), "%s", prefix)
			require.Less(h, log.Count(), children+20)

			ctx, cancel := context.WithCancel(h.Context())
			require.Less(h, h.measureRoundTrips(func() {
				found, err := leaderelection.Observe(ctx, h.connectAsync(), node)
				require.NoError(h, err)
				require.Equal(h, c.ID(), (<-found).Leader.ID)
			}), 100.0)
			cancel()
			c.resign()
		})
	}
}
