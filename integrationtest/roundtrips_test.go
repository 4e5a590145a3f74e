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
)

// These tests count what the others' correctness costs. They do not run side
// by side with others, and those that count watches have a server of their own.

const (
	// oneWay is added to each direction, so that a request that waits for
	// another one's reply cannot be taken for one that does not.
	oneWay    = 100 * time.Millisecond
	roundTrip = 2 * oneWay
)

// delayNetwork makes a client's link slow and forgets what has passed.
func delayNetwork(conn *client) *zkproxy.Proxy {
	p := conn.Network[0]
	p.Delay(zkproxy.Both, oneWay)
	p.ResetLog()
	return p
}

// countSequential is how many round trips, one after the other, are in a log: the
// longest chain of requests that each were sent after the reply to the one
// before. Pings and the checks that prove a session's life are nobody's wait.
func countSequential(log []zkproxy.Record) (depth int) {
	level := map[int32]int{}
	for _, r := range log {
		switch {
		case r.Op == zkproxy.OpPing || r.Op == zkproxy.OpConnect || r.Op == zkproxy.OpMulti:
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

// eventsOf are the notifications in a log, as "type path".
func eventsOf(log []zkproxy.Record) (events []string) {
	for _, r := range log {
		if r.Kind == zkproxy.Event {
			events = append(events, fmt.Sprintf("%s %s", map[int32]string{1: "created", 2: "deleted", 3: "changed", 4: "children"}[r.EventType], r.Path))
		}
	}
	return events
}

func TestCostJoin(t *testing.T) {
	admin, conn, second, third := connect(t), connectShort(t), connectShort(t), connectShort(t)
	node := createElectionNode(t, admin)

	c := newCandidate(t, conn, node)
	first := delayNetwork(conn)
	c.startElecting()
	t.Cleanup(func() { _ = c.Resign() })
	l := c.requireLeader(t)
	log := first.Log()
	require.NotZero(t, l.Token())
	require.Equal(t, 2, countSequential(log), "first: create, then listing and own znode side by side\n%s", formatRecords(log))
	require.Equal(t, 1, first.Count(zkproxy.OpCreate))

	for _, conn := range []*client{second, third} {
		next := newCandidate(t, conn, node)
		p := delayNetwork(conn)
		next.startElecting()
		t.Cleanup(func() { _ = next.Resign() })
		next.requireFollower(t, c)
		log = p.Log()
		require.Equal(t, 3, countSequential(log), "follower: the same, then the predecessor\n%s", formatRecords(log))
		c = next
	}
}

// TestCostSuccession also shows who is woken by a departure.
func TestCostSuccession(t *testing.T) {
	// Sessions that a busy machine does not let go: what a reconnection costs is not
	// looked for here.
	const lasting = 10 * time.Second
	server := harness.StartServers(t, ensemble.Config{TickTime: lasting / 20})
	admin := connectTo(t, lasting, server.Addr(0))
	node := createElectionNode(t, admin)
	var all []*candidate
	var conns []*client
	for range 5 {
		conn := connectTo(t, lasting, server.Addr(0))
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
		// The second in line has verified that it is, and proves its session's
		// life: the one that has joined there, or was told by the new leader.
		harness.Eventually(t, func() bool {
			checks := 0
			for _, r := range p.Log() {
				if r.Kind == zkproxy.Reply && r.Op == zkproxy.OpMulti && r.Path == next.ID() {
					checks++
				}
			}
			return checks >= 2
		}, "the second in line prepares")
		for _, conn := range conns {
			conn.Network[0].ResetLog()
		}
		// So slow that a machine that stands still is not taken for who waits for a reply.
		p.Delay(zkproxy.Both, 10*oneWay)

		resigned := harness.InBackground(t, leader.Resign)
		l := next.requireLeader(t)
		at := time.Now()
		log := p.Log()
		require.Equal(t, []string{"deleted " + leader.ID()}, eventsOf(log))
		for _, r := range log {
			if r.Kind == zkproxy.Event {
				took := at.Sub(r.Time)
				t.Logf("leads %v after the event", took)
				require.Less(t, took, 10*roundTrip, "it has waited for a reply\n%s", formatRecords(log))
			}
		}
		p.Delay(zkproxy.Both, oneWay)
		require.NoError(t, l.Err())
		require.NoError(t, harness.Receive(t, resigned, "the resignation"))

		// The hint to the next in line.
		hinted := []string{"changed " + next.ID()}
		harness.Eventually(t, func() bool { return len(eventsOf(conns[i+2].Network[0].Log())) > 0 }, "the hint arrives")
		harness.Eventually(t, func() bool { return conns[i+2].Network[0].Count(zkproxy.OpGetData) > 0 }, "the watch is set anew")
		for k, conn := range conns[i+2:] {
			log := conn.Network[0].Log()
			if k == 0 {
				require.Equal(t, hinted, eventsOf(log))
				continue
			}
			require.Empty(t, eventsOf(log), "candidate %d was woken by the end of %d", i+2+k, i)
			require.Zero(t, conn.Network[0].Count(zkproxy.OpAny), "%s", formatRecords(log))
		}
	}
}

// TestCostSuccessionUnverified has the two candidates ahead go at once, so that
// the successor could not know that its predecessor was the first.
func TestCostSuccessionUnverified(t *testing.T) {
	admin, conn := connect(t), connectShort(t)
	node := createElectionNode(t, admin)
	ahead := []string{createContender(t, admin, node), createContender(t, admin, node)}
	c := startCandidate(t, conn, node)
	require.Equal(t, ahead[1], c.nextStatus(t).NowFollowing)
	p := delayNetwork(conn)
	_, err := admin.Multi(deleteRequest(ahead[0]), deleteRequest(ahead[1]))
	require.NoError(t, err)
	c.requireLeader(t)
	log := p.Log()
	require.Equal(t, 1, countSequential(log), "%s", formatRecords(log))
	require.Equal(t, 1, p.Count(zkproxy.OpGetChildren2), "%s", formatRecords(log))
	require.Equal(t, []string{"deleted " + ahead[1]}, eventsOf(log))
}

// TestCostAtRest counts what a connection with many candidates needs while
// nothing happens.
func TestCostAtRest(t *testing.T) {
	server := harness.StartServers(t, ensemble.Config{TickTime: 200 * time.Millisecond})
	admin, conn := connectTo(t, shortTimeout, server.Addr(0)), connectTo(t, shortTimeout, server.Addr(0))
	const (
		inLine  = 100 // candidates of one election
		leaders = 50  // and of one each
	)
	long, short := createElectionNode(t, admin), make([]string, leaders)
	for i := range short {
		short[i] = createElectionNode(t, admin)
	}
	goroutines, watches := runtime.NumGoroutine(), countServerWatches(t, server)
	require.Zero(t, watches)
	require.Zero(t, countClientWatches(t, conn))

	var all []*candidate
	for range inLine {
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
	atRest := waitGoroutines(goroutines+len(all)+1) - goroutines
	t.Logf("%d goroutines", atRest)
	require.LessOrEqual(t, atRest, len(all)+1, "more than one for each candidate and one for the connection")

	const periods = 10
	period := shortTimeout / 8
	p := conn.Network[0]
	p.ResetLog()
	<-time.After(periods * period) // the time over which is counted
	log := p.Log()
	checks := p.Count(zkproxy.OpMulti)
	t.Logf("%d checks in %d periods", checks, periods)
	require.LessOrEqual(t, checks, periods+1, "one check a period, however many lead\n%s", formatRecords(log))
	require.GreaterOrEqual(t, checks, periods/2, "the leaders do not prove anything")
	require.Equal(t, checks, p.Count(zkproxy.OpAny), "nothing but checks\n%s", formatRecords(log))

	for i := len(all) - 1; i >= 0; i-- {
		all[i].resign(t)
	}
	require.Zero(t, countServerWatches(t, server), "the server still watches for somebody")
	require.Zero(t, countClientWatches(t, conn), "the client library still watches for somebody")
	require.LessOrEqual(t, waitGoroutines(goroutines), goroutines, "goroutines are left")
}

// waitGoroutines waits until there are not more than n goroutines, and returns how many
// there are in the end. Requests under way have theirs, for a moment.
func waitGoroutines(n int) (count int) {
	for end := time.Now().Add(harness.WaitLimit); ; {
		if count = runtime.NumGoroutine(); count <= n || time.Now().After(end) {
			return count
		}
		time.Sleep(time.Millisecond)
	}
}

// TestCostResignedFollower has followers come and go behind a leader that
// stays: all of them together leave one watch for their connection.
func TestCostResignedFollower(t *testing.T) {
	server := harness.StartServers(t, ensemble.Config{TickTime: 200 * time.Millisecond})
	admin, conn := connectTo(t, shortTimeout, server.Addr(0)), connectTo(t, shortTimeout, server.Addr(0))
	node := createElectionNode(t, admin)
	leader, l := startLeader(t, admin, node)
	harness.Eventually(t, func() bool { return countServerWatches(t, server) == 1 }, "the leader watches its own znode")
	for range 20 {
		follower := startFollower(t, conn, node, leader)
		require.Equal(t, 3, countServerWatches(t, server))
		follower.resign(t)
		require.Equal(t, 2, countServerWatches(t, server))
		require.Equal(t, 1, countClientWatches(t, conn))
	}
	require.NoError(t, l.Err())
	leader.requireNoStatus(t, 0)
}
