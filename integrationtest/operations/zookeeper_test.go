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
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

// zkServers are ZooKeeper servers with two candidates.
type zkServers struct {
	*ensemble.Ensemble
	proxies []*zkproxy.Proxy // proxies are the networks of the candidates to the first server.
	backup  string           // backup is a copy of the data from before the election.
}

// TestZooKeeper fails if an operation on ZooKeeper servers leads to two leaders, to none afterwards, or
// to none without a reason in the log.
func TestZooKeeper(t *testing.T) {
	testOperations(t, []operation[*zkServers]{
		{name: "Restarted", reason: "zookeeper: ", run: func(e *election, s *zkServers) {
			require.NoError(e, s.Kill(0))
			e.waitForNoLeader()
			s.start(e)
		}},
		{name: "RestartedQuickly", run: func(e *election, s *zkServers) {
			require.NoError(e, s.Restart(0))
			harness.WaitReady(e, s.Ensemble)
		}},
		{name: "Restored", short: true, reason: "lost their data", run: func(e *election, s *zkServers) { s.replaceData(e, s.backup) }},
		{name: "Emptied", reason: "lost their data", run: func(e *election, s *zkServers) { s.replaceData(e, e.TempDir()) }},
		{name: "Paused", reason: "zookeeper: ", run: func(e *election, s *zkServers) {
			require.NoError(e, s.Pause(0))
			e.waitForNoLeader()
			time.Sleep(timeout)
			require.NoError(e, s.Resume(0))
		}},
		{name: "ConnectionsKilled", run: func(_ *election, s *zkServers) {
			for range 5 {
				for _, p := range s.proxies {
					p.DropConnections()
				}
				time.Sleep(timeout / 8)
			}
		}},
		{name: "CutOff", reason: "zookeeper: ", run: func(e *election, s *zkServers) {
			for _, p := range s.proxies {
				p.Blackhole(zkproxy.Both)
			}
			e.waitForNoLeader()
			time.Sleep(timeout) // The client library reports a failure only if it has broken the connection.
			for _, p := range s.proxies {
				p.Unblackhole()
			}
		}},
		{name: "AddressChanged", reason: "zookeeper: ", run: func(e *election, s *zkServers) {
			for _, p := range s.proxies {
				p.SetTarget("127.0.0.1:1")
				p.DropConnections()
			}
			e.waitForNoLeader()
			for _, p := range s.proxies {
				p.SetTarget(s.Addr(0))
			}
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
		proxy, err := zkproxy.New(s.Addr(0))
		require.NoError(e, err)
		e.Cleanup(proxy.Close)
		s.proxies = append(s.proxies, proxy)
		conn, events, err := zkdial.Connect(append([]string{proxy.Addr()}, s.Addrs()[1:]...), timeout, zkdial.WithLogger(e.logger()))
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
