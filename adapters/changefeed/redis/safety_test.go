//go:build unix

package redis_test

import (
	"testing"

	driver "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/safetytable"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/redis"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// on is a case with a client of one server, which is started once.
func on(start func(t *testing.T) *dbserver.Server) safetytable.Case {
	var server *dbserver.Server
	return safetytable.Case{Start: func(t *testing.T, accepted ...changefeed.Risk) error {
		if server == nil {
			server = start(t)
		}
		client := newClient(t, server.Addr(), nil)
		return newStore(t, client, newKey(), redis.WithRisk(accepted...)).Start(bounded(t))
	}}
}

func with(args ...string) safetytable.Case {
	return on(func(t *testing.T) *dbserver.Server { return startServer(t, args...) })
}

// TestSafetyTable compares Start with each row of the documentation's table.
func TestSafetyTable(t *testing.T) {
	var cluster *dbserver.Server
	safetytable.Check(t, "Redis", map[string]safetytable.Case{
		"one server, appendonly yes, appendfsync always":               with(),
		"one server, appendfsync everysec":                             with("--appendfsync", "everysec"),
		"one server, no-appendfsync-on-rewrite yes":                    with("--no-appendfsync-on-rewrite", "yes"),
		"one server with snapshots alone (save, the server's default)": with("--appendonly", "no", "--save", "3600 1"),
		"one server that keeps nothing":                                with("--appendonly", "no"),
		"one server with replicas, or a managed service with them": on(func(t *testing.T) *dbserver.Server {
			server := startServer(t)
			startReplica(t, server)
			return server
		}),
		"Sentinel (NewFailoverClient)": {Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			sentinel, err := dbserver.Sentinel(startServer(t))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, sentinel.Close()) })
			client := driver.NewFailoverClient(&driver.FailoverOptions{
				MasterName: dbserver.SentinelMaster, SentinelAddrs: []string{sentinel.Addr()},
			})
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			return newStore(t, client, newKey(), redis.WithRisk(accepted...)).Start(bounded(t))
		}},
		"Cluster (NewClusterClient)": {Start: func(t *testing.T, accepted ...changefeed.Risk) error {
			if cluster == nil {
				cluster = startCluster(t)
			}
			client := driver.NewClusterClient(&driver.ClusterOptions{Addrs: []string{cluster.Addr()}})
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			return newStore(t, client, newKey(), redis.WithRisk(accepted...)).Start(bounded(t))
		}},
		"eviction (maxmemory with an allkeys policy)": with("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"),
		"a client of a replica": on(func(t *testing.T) *dbserver.Server {
			return startReplica(t, startServer(t))
		}),
	})
}

// TestUnsafeError: the error has everything that was found, and how to accept it.
func TestUnsafeError(t *testing.T) {
	server := startServer(t, "--appendonly", "no", "--save", "3600 1")
	startReplica(t, server)
	err := newStore(t, newClient(t, server.Addr(), nil), newKey()).Start(bounded(t))
	for _, text := range []string{server.Addr(), `save is "3600 1"`, "set appendonly to yes", `the number of replicas is "1"`, "unsafe=failover,restart"} {
		require.ErrorContains(t, err, text)
	}
	both := redis.WithRisk(changefeed.RiskFailover, changefeed.RiskRestart)
	require.NoError(t, newStore(t, newClient(t, server.Addr(), nil), newKey(), both).Start(bounded(t)))
	_, err = redis.New(newClient(t, server.Addr(), nil), "k", redis.WithRisk("fire"))
	require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
}

// TestSettingsNotShown: a setting that the user may not read counts as the server's default,
// which is not safe for files, unless INFO shows enough.
func TestSettingsNotShown(t *testing.T) {
	risks := func(t *testing.T, server *dbserver.Server, rules ...any) []changefeed.Risk {
		operator := newClient(t, server.Addr(), nil)
		user := append([]any{"ACL", "SETUSER", "weak", "reset", "on", ">secret", "+@all", "&*", "~*"}, rules...)
		require.NoError(t, operator.Do(bounded(t), user...).Err())
		err := newStore(t, newClient(t, server.Addr(), func(o *driver.Options) {
			o.Username, o.Password = "weak", "secret"
		}), newKey()).Start(bounded(t))
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
