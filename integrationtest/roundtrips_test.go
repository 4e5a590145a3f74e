package integrationtest

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func formatRecords(log []zkproxy.Record) string {
	var b strings.Builder
	for _, r := range log {
		b.WriteString(r.String() + "\n")
	}
	return b.String()
}

// TestIdleCandidates_SendOnlyLeaseChecks checks that many idle candidates of one connection send no requests except
// one common check of their leases in each period, and have at most two watches and one goroutine each.
func TestIdleCandidates_SendOnlyLeaseChecks(t *testing.T) {
	server := ensemble.StartServers(t, ensemble.Config{TickTime: sessionTimeout / 20})
	admin, conn := connectTo(t, sessionTimeout, server.Addr(0)), connectTo(t, sessionTimeout, server.Addr(0))
	const (
		queued  = 100 // the number of candidates of one election
		leaders = 50  // the number of elections with one candidate
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

	time.Sleep(queued * 10 * time.Millisecond) // all candidates have prepared for their turn
	const periods, period = 4, sessionTimeout / 8
	p := conn.Network[0]
	p.ResetLog()
	<-time.After(periods * period) // count the requests of this time
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

// waitGoroutines waits until there are at most n goroutines, and returns their number. It waits because pending
// requests have goroutines for a moment.
func waitGoroutines(n int) (count int) {
	for end := time.Now().Add(testenv.WaitLimit); ; {
		if count = runtime.NumGoroutine(); count <= n || time.Now().After(end) {
			return count
		}
		time.Sleep(time.Millisecond)
	}
}

// countClientWatches returns the number of watches that the client library keeps for a connection.
func countClientWatches(t testing.TB, conn *client) (n int) {
	t.Helper()
	conn.WaitConnected(t) // wait until all earlier events are handled
	return bubble.Watches(conn.Conn)
}

// countServerWatches returns the number of watches of a server, on data and on children. It uses the command "mntr",
// because "wchs" and "wchp" do not count watches on children.
func countServerWatches(t testing.TB, e *ensemble.Ensemble) int {
	t.Helper()
	answer, err := e.FourLetter(0, "mntr")
	require.NoError(t, err)
	for line := range strings.Lines(answer) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), "\t"); key == "zk_watch_count" {
			n, err := strconv.Atoi(value)
			require.NoError(t, err)
			return n
		}
	}
	require.Fail(t, "no zk_watch_count", "%s", answer)
	return 0
}
