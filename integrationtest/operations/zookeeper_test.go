package operations

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

// zkServers are ZooKeeper servers with two candidates.
type zkServers struct {
	*ensemble.Ensemble
	backup string // backup is a copy of the data from before the election.
}

// noSession is the beginning of the message that explains why a candidate has no session for two seconds.
const noSession = "no ZooKeeper server has granted a session"

// TestZooKeeper fails if an operation on ZooKeeper servers leads to two leaders, to none afterwards, or
// to none without a reason in the log.
func TestZooKeeper(t *testing.T) {
	testOperations(t, []operation[*zkServers]{
		{name: "Restarted", reason: noSession, run: func(e *election, s *zkServers) {
			require.NoError(e, s.Kill(0))
			e.waitForNoLeader()
			e.waitForLog(noSession)
			s.start(e)
		}},
		{name: "RestartedQuickly", run: func(e *election, s *zkServers) {
			require.NoError(e, s.Restart(0))
			harness.WaitReady(e, s.Ensemble)
		}},
		{name: "Restored", short: true, reason: "lost their data", run: func(e *election, s *zkServers) { s.replaceData(e, s.backup) }},
		{name: "Emptied", reason: "lost their data", run: func(e *election, s *zkServers) { s.replaceData(e, e.TempDir()) }},
		{name: "Paused", reason: noSession, run: func(e *election, s *zkServers) {
			require.NoError(e, s.Pause(0))
			e.waitForNoLeader()
			time.Sleep(timeout)
			require.NoError(e, s.Resume(0))
		}},
		{name: "ConnectionsKilled", run: func(e *election, _ *zkServers) { e.networks.dropRepeatedly() }},
		{name: "CutOff", reason: noSession, run: func(e *election, _ *zkServers) {
			e.networks.cut()
			e.waitForNoLeader()
			e.waitForLog(noSession)
			e.networks.heal()
		}},
		{name: "AddressChanged", reason: noSession, run: func(e *election, s *zkServers) {
			e.networks.disconnect()
			e.waitForNoLeader()
			e.waitForLog(noSession)
			e.networks.connectTo(s.Addr(0))
		}},
	}, func(e *election) *zkServers { return startZooKeeper(e, 1) })
	testOperations(t, []operation[*zkServers]{
		{name: "FailedOver", run: func(e *election, s *zkServers) {
			leader, err := s.Leader()
			require.NoError(e, err)
			require.NoError(e, s.Kill(leader))
			harness.WaitReady(e, s.Ensemble)
		}},
	}, func(e *election) *zkServers { return startZooKeeper(e, 3) })
}

// startZooKeeper starts servers and two candidates.
func startZooKeeper(e *election, servers int) *zkServers {
	s := &zkServers{Ensemble: harness.StartServers(e, ensemble.Config{Servers: servers, Backend: ensemble.Process})}
	if servers == 1 {
		require.NoError(e, s.Kill(0))
		s.backup = filepath.Join(e.TempDir(), "backup")
		require.NoError(e, os.CopyFS(s.backup, os.DirFS(s.DataDir(0))))
		s.start(e)
	}
	for range 2 {
		conn, events, err := zkdial.Connect(append([]string{e.addNetwork(s.Addr(0))}, s.Addrs()[1:]...), timeout, zkdial.WithLogger(e.logger()))
		require.NoError(e, err)
		e.Cleanup(func() {
			conn.Close()
			for range events { // until the goroutines of the connection have ended
			}
		})
		c, err := leaderelection.NewElection(conn, node, leaderelection.WithCreateNode(), leaderelection.WithRejoin(), leaderelection.WithLogger(e.logger()))
		require.NoError(e, err)
		e.add(c)
	}
	return s
}

// start starts the first server, and waits until it serves clients.
func (s *zkServers) start(e *election) {
	require.NoError(e, s.Start(0))
	harness.WaitReady(e, s.Ensemble)
}

// replaceData replaces the data of the first server by a directory.
func (s *zkServers) replaceData(e *election, dir string) {
	require.NoError(e, s.Kill(0))
	require.NoError(e, os.RemoveAll(s.DataDir(0)))
	require.NoError(e, os.CopyFS(s.DataDir(0), os.DirFS(dir)))
	s.start(e)
}
