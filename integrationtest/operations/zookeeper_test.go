package operations

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/operators"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

// zkServers contains ZooKeeper servers on which two candidates compete.
type zkServers struct {
	*ensemble.Ensemble
	backup string // a copy of the data from before the election
}

const oldUser, newUser = "user:old", "user:new"

// noSession is the beginning of the message that a candidate logs if it has had no session for two seconds.
const noSession = "no ZooKeeper server has granted a session"

// TestZooKeeper_OperationsKeepOneLeader checks that an operation on ZooKeeper servers, such as a restart or a
// restored backup, does not lead to two leaders, and that a candidate leads afterwards. If there was no leader
// meanwhile, the log contains the reason.
func TestZooKeeper_OperationsKeepOneLeader(t *testing.T) {
	operators.Test(t, []operators.Operation[*zkServers]{
		{Name: "Restarted", Reason: noSession, Run: func(e *operators.Election, s *zkServers) {
			require.NoError(e, s.Kill(0))
			e.WaitForNoLeader()
			e.WaitForLog(noSession)
			s.start(e)
		}},
		{Name: "RestartedQuickly", Run: func(e *operators.Election, s *zkServers) {
			require.NoError(e, s.Restart(0))
			ensemble.WaitReady(e, s.Ensemble)
		}},
		{Name: "Restored", Short: true, Reason: "lost their data", Run: func(e *operators.Election, s *zkServers) { s.replaceData(e, s.backup) }},
		{Name: "Emptied", Reason: "lost their data", Run: func(e *operators.Election, s *zkServers) { s.replaceData(e, e.TempDir()) }},
		{Name: "Paused", Reason: noSession, Run: func(e *operators.Election, s *zkServers) {
			require.NoError(e, s.Pause(0))
			e.WaitForNoLeader()
			time.Sleep(operators.Timeout)
			require.NoError(e, s.Resume(0))
		}},
		{Name: "ConnectionsKilled", Run: func(e *operators.Election, _ *zkServers) { e.Networks.DropRepeatedly() }},
		{Name: "CutOff", Reason: noSession, Run: func(e *operators.Election, _ *zkServers) {
			e.Networks.Cut()
			e.WaitForNoLeader()
			e.WaitForLog(noSession)
			e.Networks.Heal()
		}},
		{Name: "AddressChanged", Reason: noSession, Run: func(e *operators.Election, s *zkServers) {
			e.Networks.Disconnect()
			e.WaitForNoLeader()
			e.WaitForLog(noSession)
			e.Networks.ConnectTo(s.Addr(0))
		}},
		// The leader only compares znodes in its requests, so it keeps the leadership when the quota is exceeded. The
		// servers reject candidates that join.
		{Name: "Full", Reason: "QUOTAEXCEEDED", Run: func(e *operators.Election, s *zkServers) {
			admin := s.connect(e)
			const quota = "/zookeeper/quota" + node
			for _, z := range [][2]string{
				{quota, ""}, {quota + "/zookeeper_limits", "count=-1,bytes=-1=;countHardLimit=1"}, {quota + "/zookeeper_stats", "count=3,bytes=0"},
			} {
				_, err := admin.Create(z[0], []byte(z[1]), 0, zk.WorldACL(zk.PermAll))
				require.NoError(e, err)
			}
			e.WaitForLeader(time.Now().Add(operators.Timeout))
			s.expireSessions(e, admin)
			e.WaitForLog("QUOTAEXCEEDED")
			require.NoError(e, admin.Delete(quota+"/zookeeper_limits", -1))
		}},
		{Name: "AuthenticationRequired", Reason: "SESSIONCLOSEDREQUIRESASLAUTH", Run: func(e *operators.Election, s *zkServers) {
			original, err := os.ReadFile(s.ConfigFile(0))
			require.NoError(e, err)
			s.configure(e, append(original, "enforce.auth.enabled=true\nenforce.auth.schemes=digest\n"...))
			e.WaitForNoLeader()
			e.WaitForLog("SESSIONCLOSEDREQUIRESASLAUTH")
			s.configure(e, original)
		}},
		{Name: "IdleTimeout", Run: func(e *operators.Election, _ *zkServers) { e.Networks.LimitIdle(operators.Timeout / 5) }},
	}, func(e *operators.Election) *zkServers {
		return startWithCandidates(e, ensemble.Config{Properties: map[string]string{"enforceQuota": "true"}})
	})
	operators.Test(t, []operators.Operation[*zkServers]{
		// To rotate credentials, the operators permit both users, restart one program after the other,
		// and then permit only the new user.
		{Name: "CredentialsRotated", Run: func(e *operators.Election, s *zkServers) {
			admin := s.connect(e)
			restrictNode(e, admin, oldUser, newUser)
			for range 2 {
				s.addCandidate(e, newUser)
				e.StopOldest()
			}
			restrictNode(e, admin, newUser)
			e.WaitForLeader(time.Now().Add(operators.Timeout))
		}},
		// The leader keeps the leadership when its permission is revoked. A candidate that may not join ends its
		// candidacy, and a supervisor starts the program again.
		{Name: "PermissionRevoked", Short: true, Reason: "NOAUTH", Run: func(e *operators.Election, s *zkServers) {
			admin := s.connect(e)
			restrictNode(e, admin, newUser)
			e.WaitForLeader(time.Now().Add(operators.Timeout))
			s.expireSessions(e, admin)
			e.WaitForLog("NOAUTH")
			restrictNode(e, admin, oldUser)
			s.addCandidate(e, oldUser)
		}},
	}, func(e *operators.Election) *zkServers {
		s := startZooKeeper(e, ensemble.Config{})
		_, err := s.connect(e).Create(node, nil, 0, aclOf(oldUser))
		require.NoError(e, err)
		s.addCandidate(e, oldUser)
		s.addCandidate(e, oldUser)
		return s
	})
	operators.Test(t, []operators.Operation[*zkServers]{
		{Name: "FailedOver", Run: func(e *operators.Election, s *zkServers) {
			leader, err := s.Leader()
			require.NoError(e, err)
			require.NoError(e, s.Kill(leader))
			ensemble.WaitReady(e, s.Ensemble)
		}},
		// Without a quorum, the remaining server serves only clients that accept a read-only server. It closes the
		// connections of the candidates, which do not.
		{Name: "ReadOnly", Reason: noSession, Run: func(e *operators.Election, s *zkServers) {
			require.NoError(e, s.Kill(1))
			require.NoError(e, s.Kill(2))
			testenv.Eventually(e.T, func() bool {
				answer, err := s.FourLetter(0, "isro")
				return err == nil && answer == "ro"
			}, "the server is not read-only")
			e.WaitForNoLeader()
			e.WaitForLog(noSession)
			require.NoError(e, s.Start(1))
			require.NoError(e, s.Start(2))
		}},
	}, func(e *operators.Election) *zkServers {
		return startWithCandidates(e, ensemble.Config{Servers: 3, JavaFlags: []string{"-Dreadonlymode.enabled=true"}})
	})
}

// startZooKeeper starts ZooKeeper servers without candidates.
func startZooKeeper(e *operators.Election, cfg ensemble.Config) *zkServers {
	cfg.Backend = ensemble.Process
	return &zkServers{Ensemble: ensemble.StartServers(e, cfg)}
}

// startWithCandidates starts ZooKeeper servers and two candidates. If there is only one server, startWithCandidates
// first makes a backup of the server's data.
func startWithCandidates(e *operators.Election, cfg ensemble.Config) *zkServers {
	s := startZooKeeper(e, cfg)
	if s.Servers() == 1 {
		require.NoError(e, s.Kill(0))
		s.backup = filepath.Join(e.TempDir(), "backup")
		require.NoError(e, os.CopyFS(s.backup, os.DirFS(s.DataDir(0))))
		s.start(e)
	}
	s.addCandidate(e, "")
	s.addCandidate(e, "")
	return s
}

// addCandidate adds a candidate with a separate network to the first server. user contains the user name and the
// password for the scheme digest, or is empty.
func (s *zkServers) addCandidate(e *operators.Election, user string) {
	conn, events, err := zkdial.Connect(append([]string{e.AddNetwork(s.Addr(0))}, s.Addrs()[1:]...), operators.Timeout, zkdial.WithLogger(e.Logger()))
	require.NoError(e, err)
	e.Cleanup(func() {
		conn.Close()
		for range events { // wait until the goroutines of the connection have ended
		}
	})
	opts := []leaderelection.Option{leaderelection.WithCreateNode(), leaderelection.WithRejoin(), leaderelection.WithLogger(e.Logger())}
	if user != "" {
		require.NoError(e, conn.AddAuth("digest", []byte(user)))
		opts = append(opts, leaderelection.WithACL(aclOf(user)))
	}
	c, err := leaderelection.NewElection(conn, node, opts...)
	require.NoError(e, err)
	e.Add(c)
}

// aclOf returns the ACL that permits everything to the given users. Each user is the text name:password.
func aclOf(users ...string) (acl []zk.ACL) {
	for _, u := range users {
		name, password, _ := strings.Cut(u, ":")
		acl = append(acl, zk.DigestACL(zk.PermAll, name, password)...)
	}
	return acl
}

// restrictNode changes the ACL of the election node so that only the given users have access.
func restrictNode(e *operators.Election, admin *zkproxy.Client, users ...string) {
	_, err := admin.SetACL(node, aclOf(users...), -1)
	require.NoError(e, err)
}

// connect returns a client with the credentials of all users.
func (s *zkServers) connect(e *operators.Election) *zkproxy.Client {
	admin := zkproxy.ConnectDirectly(e, operators.Timeout, s.Addr(0))
	for _, user := range []string{oldUser, newUser} {
		require.NoError(e, admin.AddAuth("digest", []byte(user)))
	}
	return admin
}

// expireSessions cuts off the candidates from the servers until their sessions have expired.
func (s *zkServers) expireSessions(e *operators.Election, admin *zkproxy.Client) {
	e.Networks.Cut()
	testenv.Eventually(e.T, func() bool {
		children, _, err := admin.Children(node)
		return err == nil && len(children) == 0
	}, "the sessions do not expire")
	e.Networks.Heal()
}

// start starts the first server of the ensemble, and waits until the ensemble serves clients.
func (s *zkServers) start(e *operators.Election) {
	require.NoError(e, s.Start(0))
	ensemble.WaitReady(e, s.Ensemble)
}

// replaceData replaces the data of the first server by the content of a directory.
func (s *zkServers) replaceData(e *operators.Election, dir string) {
	require.NoError(e, s.Kill(0))
	require.NoError(e, os.RemoveAll(s.DataDir(0)))
	require.NoError(e, os.CopyFS(s.DataDir(0), os.DirFS(dir)))
	s.start(e)
}

// configure replaces the configuration file of the first server, and restarts the server.
func (s *zkServers) configure(e *operators.Election, config []byte) {
	require.NoError(e, s.Kill(0))
	require.NoError(e, os.WriteFile(s.ConfigFile(0), config, 0o644))
	s.start(e)
}
