package integrationtest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	// oneWay is the delay of each direction. It distinguishes requests in flight at the same time from
	// requests that are sent after the reply to the previous request.
	oneWay    = 100 * time.Millisecond
	roundTrip = 2 * oneWay
)

// delayNetwork delays a client's network and clears the log of its proxy.
func delayNetwork(conn *client) *zkproxy.Proxy {
	p := conn.Network[0]
	p.Delay(zkproxy.Both, oneWay)
	p.ResetLog()
	return p
}

// countSequential returns the length of the longest chain of requests in a log in which each request was sent
// after the reply to the previous one. It ignores pings and the checks that renew the lease, because no
// operation waits for them.
func countSequential(log []zkproxy.Record) (depth int) {
	level := map[int32]int{}
	for _, r := range log {
		switch {
		case r.Op == zktest.OpPing || r.Op == zktest.OpConnect || r.Op == zktest.OpMulti:
		case r.Kind == zkproxy.Request:
			level[r.Xid] = depth + 1
		case r.Kind == zkproxy.Reply:
			depth = max(depth, level[r.Xid])
		}
	}
	return depth
}

func formatRecords(log []zkproxy.Record) string {
	var b strings.Builder
	for _, r := range log {
		b.WriteString(r.String() + "\n")
	}
	return b.String()
}

// eventsOf returns the events in a log, as "type path".
func eventsOf(log []zkproxy.Record) (events []string) {
	for _, r := range log {
		if r.Kind == zkproxy.Event {
			events = append(events, fmt.Sprintf("%s %s", map[int32]string{1: "created", 2: "deleted", 3: "changed", 4: "children"}[r.EventType], r.Path))
		}
	}
	return events
}

func TestRoundTrips_Join(t *testing.T) {
	admin, conn, second, third := connect(t), connectShort(t), connectShort(t), connectShort(t)
	node := createElectionNode(t, admin)

	c := newCandidate(t, conn, node)
	first := delayNetwork(conn)
	c.startElecting()
	t.Cleanup(func() { _ = c.Resign() })
	l := c.requireLeader(t)
	log := first.Log()
	require.NotZero(t, l.Token())
	require.Equal(t, 2, countSequential(log), "leader: not create, then listing and the candidate's znode in parallel\n%s", formatRecords(log))
	require.Equal(t, 1, first.Count(zktest.OpCreate))

	for _, conn := range []*client{second, third} {
		next := newCandidate(t, conn, node)
		p := delayNetwork(conn)
		next.startElecting()
		t.Cleanup(func() { _ = next.Resign() })
		next.requireFollower(t, c)
		log = p.Log()
		require.Equal(t, 3, countSequential(log), "follower: not the same, then the predecessor\n%s", formatRecords(log))
		c = next
	}
}

// TestRoundTrips_Succession also checks which candidates a departure wakes.
func TestRoundTrips_Succession(t *testing.T) {
	// The sessions are long, because the test does not count the requests of a reconnect, which a busy machine
	// could cause.
	const timeout = 10 * time.Second
	server := harness.StartServers(t, ensemble.Config{TickTime: timeout / 20})
	admin := connectTo(t, timeout, server.Addr(0))
	node := createElectionNode(t, admin)
	var all []*candidate
	var conns []*client
	for range 5 {
		conn := connectTo(t, timeout, server.Addr(0))
		c := startCandidate(t, conn, node)
		c.nextStatus(t)
		all, conns = append(all, c), append(conns, conn)
	}
	for _, conn := range conns {
		delayNetwork(conn)
	}
	for i := range 3 {
		leader, next, nextConn := all[i], all[i+1], conns[i+1]
		p := nextConn.Network[0]
		// The first follower has verified its position, and has just renewed its lease. On a busy machine, an
		// older lease could end before the departure of the leader.
		p.ResetLog()
		harness.Eventually(t, func() bool {
			checks := 0
			for _, r := range p.Log() {
				if r.Kind == zkproxy.Reply && r.Op == zktest.OpMulti && r.Path == next.ID() {
					checks++
				}
			}
			return checks >= 2
		}, "the first follower has not sent two checks")
		for _, conn := range conns {
			conn.Network[0].ResetLog()
		}
		// The delay is so long that a slow machine is not mistaken for a wait for a reply.
		p.Delay(zkproxy.Both, 10*oneWay)

		resigned := harness.InBackground(t, leader.Resign)
		l := next.requireLeader(t)
		at := time.Now()
		log := p.Log()
		require.Equal(t, []string{"deleted " + leader.ID()}, eventsOf(log))
		for _, r := range log {
			if r.Kind == zkproxy.Event {
				took := at.Sub(r.Time)
				t.Logf("became leader %v after the event", took)
				require.Less(t, took, 10*roundTrip, "the candidate has waited for a reply\n%s", formatRecords(log))
			}
		}
		p.Delay(zkproxy.Both, oneWay)
		require.NoError(t, l.Err())
		require.NoError(t, harness.Receive(t, resigned, "the resignation"))

		// The next follower watches the old leader too, and lists the candidates.
		want := []string{"deleted " + leader.ID()}
		harness.Eventually(t, func() bool { return conns[i+2].Network[0].Count(zktest.OpGetChildren2) > 0 }, "the next follower has not listed the candidates")
		for k, conn := range conns[i+2:] {
			log := conn.Network[0].Log()
			if k == 0 {
				require.Equal(t, want, eventsOf(log))
				continue
			}
			require.Empty(t, eventsOf(log), "candidate %d was woken by the departure of %d", i+2+k, i)
			require.Zero(t, conn.Network[0].Count(zkproxy.OpAny), "%s", formatRecords(log))
		}
	}
}

// TestRoundTrips_Idle counts the requests, watches, and goroutines of a connection with many idle
// candidates.
func TestRoundTrips_Idle(t *testing.T) {
	server := harness.StartServers(t, ensemble.Config{TickTime: 200 * time.Millisecond})
	admin, conn := connectTo(t, shortTimeout, server.Addr(0)), connectTo(t, shortTimeout, server.Addr(0))
	const (
		queued  = 100 // candidates of one election
		leaders = 50  // elections with one candidate
	)
	long, short := createElectionNode(t, admin), make([]string, leaders)
	for i := range short {
		short[i] = createElectionNode(t, admin)
	}
	goroutines, watches := runtime.NumGoroutine(), countServerWatches(t, server)
	require.Zero(t, watches)
	require.Zero(t, countClientWatches(t, conn))

	var all []*candidate
	for range queued {
		all = append(all, newCandidate(t, conn, long))
	}
	for _, node := range short {
		all = append(all, newCandidate(t, conn, node))
	}
	for _, c := range all {
		c.startElecting()
		c.nextStatus(t)
	}
	require.LessOrEqual(t, countServerWatches(t, server), 2*len(all))
	require.LessOrEqual(t, countClientWatches(t, conn), 2*len(all))
	t.Logf("%d candidates, %d of them leaders: %d watches", len(all), leaders+1, countServerWatches(t, server))
	idle := waitGoroutines(goroutines+len(all)+1) - goroutines
	t.Logf("%d goroutines", idle)
	require.LessOrEqual(t, idle, len(all)+1, "more goroutines than one for each candidate and one for the connection")

	const periods = 10
	period := shortTimeout / 8
	p := conn.Network[0]
	p.ResetLog()
	<-time.After(periods * period) // the time of the measurement
	log := p.Log()
	checks := p.Count(zktest.OpMulti)
	t.Logf("%d checks in %d periods", checks, periods)
	require.LessOrEqual(t, checks, periods+1, "more than one check in a period\n%s", formatRecords(log))
	require.GreaterOrEqual(t, checks, periods/2, "the leaders do not renew their leases")
	require.Equal(t, checks, p.Count(zkproxy.OpAny), "there are other requests than checks\n%s", formatRecords(log))

	for i := len(all) - 1; i >= 0; i-- {
		all[i].resign(t)
	}
	require.Zero(t, countServerWatches(t, server), "the server has watches")
	require.Zero(t, countClientWatches(t, conn), "the client library has watches")
	require.LessOrEqual(t, waitGoroutines(goroutines), goroutines, "goroutines are left")
}

// waitGoroutines waits until there are at most n goroutines, and returns their number. Pending requests have
// goroutines for a moment.
func waitGoroutines(n int) (count int) {
	for end := time.Now().Add(harness.WaitLimit); ; {
		if count = runtime.NumGoroutine(); count <= n || time.Now().After(end) {
			return count
		}
		time.Sleep(time.Millisecond)
	}
}
