package operations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/internal/testenv/etcdserver"
)

// etcdServers are etcd servers with two candidates.
type etcdServers struct {
	*etcdserver.Cluster
	admin  *clientv3.Client
	backup string // backup is a backup from before the election.
}

// TestEtcd fails if an operation on etcd servers leads to two leaders, to none afterwards, or to none
// without a reason in the log.
func TestEtcd(t *testing.T) {
	testOperations(t, []operation[*etcdServers]{
		{name: "Restarted", reason: "connection error", run: func(e *election, s *etcdServers) {
			s.Kill(0)
			e.waitForNoLeader()
			s.Restart(0)
		}},
		{name: "RestartedQuickly", run: func(_ *election, s *etcdServers) {
			s.Kill(0)
			s.Restart(0)
		}},
		{name: "Restored", short: true, reason: "lost data", run: func(_ *election, s *etcdServers) {
			s.Kill(0)
			s.Restore(0, s.backup)
			s.Restart(0)
		}},
		{name: "Emptied", reason: "lost data", run: func(_ *election, s *etcdServers) {
			s.Kill(0)
			s.Empty(0)
			s.Restart(0)
		}},
		{name: "Paused", short: true, reason: "no answer", run: func(e *election, s *etcdServers) {
			s.Pause(0)
			e.waitForNoLeader()
			time.Sleep(timeout)
			s.Resume(0)
		}},
		{name: "ConnectionsKilled", run: func(e *election, _ *etcdServers) { e.networks.dropRepeatedly() }},
		{name: "IdleTimeout", run: func(e *election, _ *etcdServers) { e.networks.limitIdle(timeout / 10) }},
		{name: "CutOff", reason: "no answer", run: func(e *election, _ *etcdServers) {
			e.networks.cut()
			e.waitForNoLeader()
			e.networks.heal()
		}},
		{name: "AddressChanged", reason: "etcd does not execute requests", run: func(e *election, s *etcdServers) {
			e.networks.disconnect()
			e.waitForNoLeader()
			e.networks.connectTo(s.Addr(0))
		}},
		// Reads and keepalives are executed, so a leader leads on. Joining is rejected.
		{name: "Full", short: true, reason: "database space exceeded", run: func(e *election, s *etcdServers) {
			s.SetFull(true)
			candidates, err := etcd.Candidates(s.admin, node)
			require.NoError(e, err)
			for _, c := range candidates {
				kv, err := s.admin.Get(e.Context(), c.ID)
				require.NoError(e, err)
				_, err = s.admin.Revoke(e.Context(), clientv3.LeaseID(kv.Kvs[0].Lease))
				require.NoError(e, err)
			}
			e.waitForNoLeader()
			time.Sleep(timeout)
			s.SetFull(false)
		}},
	}, func(e *election) *etcdServers { return startEtcd(e, 1) })
	testOperations(t, []operation[*etcdServers]{
		{name: "FailedOver", run: func(_ *election, s *etcdServers) { s.Kill(s.Leader()) }},
		{name: "ReadOnly", reason: "etcd does not execute requests", run: func(e *election, s *etcdServers) {
			s.Kill(1)
			s.Kill(2) // The remaining server answers serializable reads only.
			e.waitForNoLeader()
			time.Sleep(timeout / 2)
			s.Restart(1)
			s.Restart(2)
		}},
	}, func(e *election) *etcdServers { return startEtcd(e, 3) })
	testOperations(t, []operation[*etcdServers]{
		{name: "CredentialsRotated", reason: "permission denied", run: func(e *election, s *etcdServers) {
			_, err := s.admin.UserRevokeRole(e.Context(), "user", "role")
			require.NoError(e, err)
			e.waitForNoLeader()
			_, err = s.admin.UserGrantRole(e.Context(), "user", "role")
			require.NoError(e, err)
		}},
	}, func(e *election) *etcdServers {
		s := startServers(e, 1)
		s.EnableAuth("READWRITE", node, clientv3.GetPrefixRangeEnd(node))
		s.admin = s.newClient(e, "root", s.Endpoints()...)
		s.addCandidates(e, "user")
		return s
	})
}

// startEtcd starts servers and two candidates.
func startEtcd(e *election, members int) *etcdServers {
	s := startServers(e, members)
	s.addCandidates(e, "")
	return s
}

func startServers(e *election, members int) *etcdServers {
	s := &etcdServers{Cluster: etcdserver.Start(e, etcdserver.Config{Members: members})}
	s.admin = s.newClient(e, "", s.Endpoints()...)
	if members == 1 {
		s.backup = s.Backup(0)
	}
	return s
}

// newClient returns a client that is closed when the test ends.
func (s *etcdServers) newClient(e *election, user string, endpoints ...string) *clientv3.Client {
	cfg := clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(), DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
	}
	if user != "" {
		cfg.Username, cfg.Password = user, etcdserver.Password
	}
	client, err := clientv3.New(cfg)
	require.NoError(e, err)
	e.Cleanup(func() { client.Close() })
	return client
}

// addCandidates adds two candidates, each with a separate network to the first server.
func (s *etcdServers) addCandidates(e *election, user string) {
	for range 2 {
		endpoints := append([]string{"http://" + e.addNetwork(s.Addr(0))}, s.Endpoints()[1:]...)
		c, err := etcd.NewElection(s.newClient(e, user, endpoints...), node, etcd.WithSessionTimeout(timeout),
			etcd.WithCreateNode(), etcd.WithRejoin(), etcd.WithLogger(e.logger()))
		require.NoError(e, err)
		e.add(c)
	}
}
