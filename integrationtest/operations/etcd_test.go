package operations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
	"github.com/go-leaderelection/leaderelection/internal/testenv/operators"
)

// etcdServers contains etcd servers on which two candidates compete.
type etcdServers struct {
	*dbserver.EtcdCluster
	admin  *clientv3.Client
	backup string // a backup of the data from before the election
}

// TestEtcd_OperationsKeepOneLeader checks that an operation on etcd servers, such as a restart or a restored backup,
// does not lead to two leaders, and that a candidate leads afterwards. If there was no leader meanwhile, the log
// contains the reason.
func TestEtcd_OperationsKeepOneLeader(t *testing.T) {
	operators.Test(t, []operators.Operation[*etcdServers]{
		{Name: "Restarted", Reason: "connection error", Run: func(e *operators.Election, s *etcdServers) {
			s.Kill(0)
			e.WaitForNoLeader()
			s.Restart(0)
		}},
		{Name: "RestartedQuickly", Run: func(_ *operators.Election, s *etcdServers) {
			s.Kill(0)
			s.Restart(0)
		}},
		{Name: "Restored", Short: true, Reason: "lost data", Run: func(_ *operators.Election, s *etcdServers) {
			s.Kill(0)
			s.Restore(0, s.backup)
			s.Restart(0)
		}},
		{Name: "Emptied", Reason: "lost data", Run: func(_ *operators.Election, s *etcdServers) {
			s.Kill(0)
			s.Empty(0)
			s.Restart(0)
		}},
		{Name: "Paused", Short: true, Reason: "no answer", Run: func(e *operators.Election, s *etcdServers) {
			s.Pause(0)
			e.WaitForNoLeader()
			time.Sleep(operators.Timeout)
			s.Resume(0)
		}},
		{Name: "ConnectionsKilled", Run: func(e *operators.Election, _ *etcdServers) { e.Networks.DropRepeatedly() }},
		{Name: "IdleTimeout", Run: func(e *operators.Election, _ *etcdServers) { e.Networks.LimitIdle(operators.Timeout / 10) }},
		{Name: "CutOff", Reason: "no answer", Run: func(e *operators.Election, _ *etcdServers) {
			e.Networks.Cut()
			e.WaitForNoLeader()
			e.Networks.Heal()
		}},
		{Name: "AddressChanged", Reason: "etcd does not execute requests", Run: func(e *operators.Election, s *etcdServers) {
			e.Networks.Disconnect()
			e.WaitForNoLeader()
			e.Networks.ConnectTo(s.Addr(0))
		}},
		// An etcd server without space executes reads and keepalives, so the leader keeps its leadership, but rejects
		// the writes of candidates that join.
		{Name: "Full", Short: true, Reason: "database space exceeded", Run: func(e *operators.Election, s *etcdServers) {
			s.SetFull(true)
			candidates, err := etcd.Candidates(t.Context(), s.admin, node)
			require.NoError(e, err)
			for _, c := range candidates {
				kv, err := s.admin.Get(e.Context(), c.ID)
				require.NoError(e, err)
				_, err = s.admin.Revoke(e.Context(), clientv3.LeaseID(kv.Kvs[0].Lease))
				require.NoError(e, err)
			}
			e.WaitForNoLeader()
			time.Sleep(operators.Timeout)
			s.SetFull(false)
		}},
	}, func(e *operators.Election) *etcdServers { return startEtcd(e, 1) })
	operators.Test(t, []operators.Operation[*etcdServers]{
		{Name: "FailedOver", Run: func(_ *operators.Election, s *etcdServers) { s.Kill(s.Leader()) }},
		{Name: "ReadOnly", Reason: "etcd does not execute requests", Run: func(e *operators.Election, s *etcdServers) {
			s.Kill(1)
			s.Kill(2) // Without a quorum, the remaining server answers serializable reads only.
			e.WaitForNoLeader()
			time.Sleep(operators.Timeout / 2)
			s.Restart(1)
			s.Restart(2)
		}},
	}, func(e *operators.Election) *etcdServers { return startEtcd(e, 3) })
	operators.Test(t, []operators.Operation[*etcdServers]{
		{Name: "CredentialsRotated", Reason: "permission denied", Run: func(e *operators.Election, s *etcdServers) {
			_, err := s.admin.UserRevokeRole(e.Context(), "user", "role")
			require.NoError(e, err)
			e.WaitForNoLeader()
			_, err = s.admin.UserGrantRole(e.Context(), "user", "role")
			require.NoError(e, err)
		}},
	}, func(e *operators.Election) *etcdServers {
		s := startServers(e, 1)
		s.EnableAuth("READWRITE", node, clientv3.GetPrefixRangeEnd(node))
		s.admin = s.newClient(e, "root", s.Endpoints()...)
		s.addCandidates(e, "user")
		return s
	})
}

// startEtcd starts etcd servers and two candidates.
func startEtcd(e *operators.Election, members int) *etcdServers {
	s := startServers(e, members)
	s.addCandidates(e, "")
	return s
}

func startServers(e *operators.Election, members int) *etcdServers {
	s := &etcdServers{EtcdCluster: dbserver.StartEtcd(e, dbserver.EtcdConfig{Members: members})}
	s.admin = s.newClient(e, "", s.Endpoints()...)
	if members == 1 {
		s.backup = s.Backup(0)
	}
	return s
}

// newClient returns an etcd client that is closed when the test ends. user is empty for a client without
// authentication.
func (s *etcdServers) newClient(e *operators.Election, user string, endpoints ...string) *clientv3.Client {
	cfg := clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(), DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
	}
	if user != "" {
		cfg.Username, cfg.Password = user, dbserver.EtcdPassword
	}
	client, err := clientv3.New(cfg)
	require.NoError(e, err)
	e.Cleanup(func() { client.Close() })
	return client
}

// addCandidates adds two candidates. Each has a separate network to the first server.
func (s *etcdServers) addCandidates(e *operators.Election, user string) {
	for range 2 {
		endpoints := append([]string{"http://" + e.AddNetwork(s.Addr(0))}, s.Endpoints()[1:]...)
		c, err := etcd.NewElection(s.newClient(e, user, endpoints...), node, etcd.WithSessionTimeout(operators.Timeout),
			etcd.WithCreateNode(), etcd.WithRejoin(), etcd.WithLogger(e.Logger()))
		require.NoError(e, err)
		e.Add(c)
	}
}
