//go:build unix

package redis_test

import (
	"testing"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/fixture"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// serverCase returns a case with a client of one server, which is started once.
func serverCase(start func(t *testing.T) *dbserver.Server) fixture.SafetyCase {
	var server *dbserver.Server
	return fixture.SafetyCase{Start: func(t *testing.T, accepted ...changefeed.Risk) error {
		if server == nil {
			server = start(t)
		}
		client := connect(t, server.Addr(), nil)
		return newStore(t, client, newKey(), redis.WithRisk(accepted...)).Start(fixture.Context(t))
	}}
}

// settingsCase returns a case with a server that is started with the given arguments.
func settingsCase(args ...string) fixture.SafetyCase {
	return serverCase(func(t *testing.T) *dbserver.Server { return startServer(t, args...) })
}

// TestStart_AcceptsDeploymentsAsDocumented checks that Start accepts or rejects each deployment as its row in
// docs/changefeed-stores.md states.
func TestStart_AcceptsDeploymentsAsDocumented(t *testing.T) {
	var cluster *dbserver.Server
	fixture.CheckSafety(t, "Redis", map[string]fixture.SafetyCase{
		"one server, appendonly yes, appendfsync always":               settingsCase(),
		"one server, appendfsync everysec":                             settingsCase("--appendfsync", "everysec"),
		"one server, no-appendfsync-on-rewrite yes":                    settingsCase("--no-appendfsync-on-rewrite", "yes"),
		"one server with snapshots alone (save, the server's default)": settingsCase("--appendonly", "no", "--save", "3600 1"),
		"one server that keeps nothing":                                settingsCase("--appendonly", "no"),
		"one server with replicas, or a managed service with them": serverCase(func(t *testing.T) *dbserver.Server {
			server := startServer(t)
			startReplica(t, server)
			return server
		}),
		"Sentinel (NewFailoverClient)": {Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			master := startServer(t)
			sentinel := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Sentinel(master) })
			client := driver.NewFailoverClient(&driver.FailoverOptions{
				MasterName: dbserver.SentinelMaster, SentinelAddrs: []string{sentinel.Addr()},
			})
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			return newStore(t, client, newKey(), redis.WithRisk(accepted...)).Start(fixture.Context(t))
		}},
		"Cluster (NewClusterClient)": {Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			if cluster == nil {
				cluster = startCluster(t)
			}
			client := driver.NewClusterClient(&driver.ClusterOptions{Addrs: []string{cluster.Addr()}})
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			return newStore(t, client, newKey(), redis.WithRisk(accepted...)).Start(fixture.Context(t))
		}},
		"eviction (maxmemory with an allkeys policy)": settingsCase("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"),
		"a client of a replica": serverCase(func(t *testing.T) *dbserver.Server {
			return startReplica(t, startServer(t))
		}),
	})
}

// TestStart_ErrorNamesUnsafeSettingAndRemedy checks that the error of Start for an unsafe server names the
// setting, its remedy, and how to accept the risk.
func TestStart_ErrorNamesUnsafeSettingAndRemedy(t *testing.T) {
	server := startServer(t, "--appendonly", "no", "--save", "3600 1")
	startReplica(t, server)
	err := newStore(t, connect(t, server.Addr(), nil), newKey()).Start(fixture.Context(t))
	for _, text := range []string{server.Addr(), `save is "3600 1"`, "set appendonly to yes", `the number of replicas is "1"`, "unsafe=failover,restart"} {
		require.ErrorContains(t, err, text)
	}
	both := redis.WithRisk(changefeed.RiskFailover, changefeed.RiskRestart)
	require.NoError(t, newStore(t, connect(t, server.Addr(), nil), newKey(), both).Start(fixture.Context(t)))
	_, err = redis.NewStore(connect(t, server.Addr(), nil), "k", redis.WithRisk("fire"))
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
}

// TestStart_AssumesDefaultsOfHiddenSettings checks that Start assumes the server's default for a setting that
// the user may not read and that INFO does not contain. The defaults for files are not safe.
func TestStart_AssumesDefaultsOfHiddenSettings(t *testing.T) {
	risks := func(t *testing.T, server *dbserver.Server, rules ...any) []changefeed.Risk {
		operator := connect(t, server.Addr(), nil)
		user := append([]any{"ACL", "SETUSER", "weak", "reset", "on", ">secret", "+@all", "&*", "~*"}, rules...)
		require.NoError(t, operator.Do(fixture.Context(t), user...).Err())
		err := newStore(t, connect(t, server.Addr(), func(o *driver.Options) {
			o.Username, o.Password = "weak", "secret"
		}), newKey()).Start(fixture.Context(t))
		var unsafe *changefeed.UnsafeError
		if err != nil {
			require.ErrorAs(t, err, &unsafe)
			require.ErrorContains(t, err, "CONFIG GET")
			return unsafe.Risks()
		}
		return nil
	}
	safe, nothing := startServer(t), startServer(t, "--appendonly", "no", "--save", "")
	require.Empty(t, risks(t, safe))
	require.Equal(t, []changefeed.Risk{changefeed.RiskPowerLoss}, risks(t, safe, "-config"))
	require.Equal(t, []changefeed.Risk{changefeed.RiskRestart}, risks(t, safe, "-config", "-info"))
	require.Equal(t, []changefeed.Risk{changefeed.RiskRestart}, risks(t, nothing, "-config"))
	require.Empty(t, risks(t, safe, "-role"))
	require.Empty(t, risks(t, safe, "-role", "-info"))

	startReplica(t, safe)
	require.Equal(t, []changefeed.Risk{changefeed.RiskFailover, changefeed.RiskPowerLoss}, risks(t, safe, "-role", "-config"))
}
