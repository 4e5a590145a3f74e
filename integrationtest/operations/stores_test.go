//go:build unix

package operations

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver that execMySQL uses
	"github.com/jackc/pgx/v5"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storeurl"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
	"github.com/go-leaderelection/leaderelection/internal/testenv/operators"
)

// storeServer contains the server of a changefeed's store, on which two candidates compete.
type storeServer struct {
	*dbserver.Server
	others []*dbserver.Server // the standbys of the server, or the other members of its cluster
	config string             // the configuration file of the server; empty if the server has none
	t      *operators.Election
}

// newStoreServer starts a server of a store, without candidates.
func newStoreServer(e *operators.Election, start func() (*dbserver.Server, error)) *storeServer {
	return &storeServer{Server: dbserver.StartServer(e, start), t: e}
}

// addCandidates starts two candidates. The function urlOf returns the URL of the store for the addresses of its
// servers, which are separated by commas.
func (s *storeServer) addCandidates(urlOf func(addrs string) string) *storeServer {
	for range 2 {
		addrs := s.t.AddNetwork(s.Addr())
		for _, other := range s.others {
			addrs += "," + s.t.AddNetwork(other.Addr())
		}
		opener, err := storeurl.Open(s.t.Context(), storeurl.Config{URL: urlOf(addrs), Election: "operations"})
		require.NoError(s.t, err)
		s.t.Cleanup(func() { _ = opener.Close() })
		store, err := opener.NewStore()
		require.NoError(s.t, err)
		s.t.Cleanup(func() { require.NoError(s.t, store.Close()) })
		c, err := changefeed.NewElection(store, changefeed.WithHeartbeat(operators.Timeout*4/7), changefeed.WithLogger(s.t.Logger()))
		require.NoError(s.t, err)
		s.t.Add(c)
	}
	return s
}

// execSQL executes statements as the superuser of the PostgreSQL server.
func (s *storeServer) execSQL(statements ...string) { s.execSQLAt(s.Server, statements...) }

// execSQLAt executes statements as the superuser of the given PostgreSQL server.
func (s *storeServer) execSQLAt(server *dbserver.Server, statements ...string) {
	conn, err := pgx.Connect(s.t.Context(), "postgres://postgres@"+server.Addr()+"/postgres?sslmode=disable")
	require.NoError(s.t, err)
	defer conn.Close(context.Background())
	for _, sql := range statements {
		_, err := conn.Exec(s.t.Context(), sql)
		require.NoError(s.t, err, sql)
	}
}

// TestPostgres_OperationsKeepOneLeader checks that an operation on a PostgreSQL server, such as a failover, does not
// lead to two leaders, and that a candidate leads afterwards. If there was no leader meanwhile, the log contains the
// reason. A trigger simulates a full disk.
func TestPostgres_OperationsKeepOneLeader(t *testing.T) {
	t.Parallel()
	const terminate = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`
	createRole := []string{"CREATE ROLE elector LOGIN", "GRANT CREATE ON SCHEMA public TO elector"}
	operators.Test(t, operators.OfStore(
		operators.Operation[*storeServer]{Name: "Emptied", Short: true, Reason: "the record of the election was deleted", Run: func(_ *operators.Election, s *storeServer) {
			s.execSQL("DROP TABLE leaderelection")
		}},
		operators.Harmless("ConnectionsKilled", func(s *storeServer) { s.execSQL(terminate) }),
		operators.InShort(operators.Harmless("IdleTimeout", func(s *storeServer) {
			s.execSQL("ALTER SYSTEM SET idle_session_timeout = '500ms'", "SELECT pg_reload_conf()")
		})),
		operators.Lasting("ReadOnly", "read-only transaction", func(s *storeServer, on bool) {
			s.execSQL("ALTER SYSTEM SET default_transaction_read_only = "+map[bool]string{true: "on", false: "off"}[on], "SELECT pg_reload_conf()")
		}),
		operators.Lasting("Full", "No space left on device", func(s *storeServer, on bool) {
			if on {
				s.execSQL(`CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
						RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$`,
					`CREATE TRIGGER reject BEFORE INSERT OR UPDATE ON leaderelection FOR EACH ROW EXECUTE FUNCTION reject()`)
			} else {
				s.execSQL("DROP TRIGGER reject ON leaderelection")
			}
		}),
		operators.Lasting("CredentialsRotated", "not permitted to log in", func(s *storeServer, on bool) {
			s.execSQL("ALTER ROLE elector "+map[bool]string{true: "NOLOGIN", false: "LOGIN"}[on], terminate)
		}),
	), func(e *operators.Election) *storeServer {
		s := newStoreServer(e, func() (*dbserver.Server, error) { return dbserver.Postgres() })
		s.execSQL(createRole...)
		return s.addCandidates(func(addr string) string {
			return "postgres://elector@" + addr + "/postgres?sslmode=disable&unsafe=power-loss"
		})
	})
	operators.Test(t, []operators.Operation[*storeServer]{
		{Name: "FailedOver", Reason: "failed", Run: func(_ *operators.Election, s *storeServer) {
			require.NoError(s.t, s.Kill())
			s.execSQLAt(s.others[0], "SELECT pg_promote()")
		}},
	}, func(e *operators.Election) *storeServer {
		s := newStoreServer(e, func() (*dbserver.Server, error) { return dbserver.Postgres("synchronous_standby_names=FIRST 1 (a)") })
		s.others = append(s.others, dbserver.StartServer(e, func() (*dbserver.Server, error) { return dbserver.PostgresStandby(s.Server, "a") }))
		s.execSQL(append(createRole, "GRANT pg_read_all_stats TO elector")...)
		return s.addCandidates(func(addrs string) string {
			return "postgres://elector@" + addrs + "/postgres?sslmode=disable&target_session_attrs=read-write&unsafe=power-loss"
		})
	})
}

// execMySQL executes statements as the superuser root of the MariaDB server.
func (s *storeServer) execMySQL(statements ...string) {
	db, err := sql.Open("mysql", "root@tcp("+s.Addr()+")/test")
	require.NoError(s.t, err)
	defer db.Close()
	for _, statement := range statements {
		_, err := db.ExecContext(s.t.Context(), statement)
		require.NoError(s.t, err, statement)
	}
}

// TestMariaDB_OperationsKeepOneLeader checks that an operation on a MariaDB server, such as a restart, does not lead
// to two leaders, and that a candidate leads afterwards. If there was no leader meanwhile, the log contains the
// reason. A trigger simulates a full disk.
func TestMariaDB_OperationsKeepOneLeader(t *testing.T) {
	t.Parallel()
	const kill = "KILL CONNECTION USER elector"
	operators.Test(t, operators.OfStore(
		operators.Operation[*storeServer]{Name: "Emptied", Short: true, Reason: "the record of the election was deleted", Run: func(_ *operators.Election, s *storeServer) {
			s.execMySQL("DROP TABLE leaderelection")
		}},
		operators.InShort(operators.Harmless("ConnectionsKilled", func(s *storeServer) { s.execMySQL(kill) })),
		operators.Harmless("IdleTimeout", func(s *storeServer) { s.execMySQL("SET GLOBAL wait_timeout = 1", kill) }),
		operators.Lasting("ReadOnly", "--read-only", func(s *storeServer, on bool) {
			s.execMySQL("SET GLOBAL read_only = " + map[bool]string{true: "ON", false: "OFF"}[on])
		}),
		operators.Lasting("Full", "No space left on device", func(s *storeServer, on bool) {
			if on {
				s.execMySQL(`CREATE TRIGGER reject BEFORE UPDATE ON leaderelection FOR EACH ROW
					SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'No space left on device'`)
			} else {
				s.execMySQL("DROP TRIGGER reject")
			}
		}),
		operators.Lasting("CredentialsRotated", "account is locked", func(s *storeServer, on bool) {
			s.execMySQL("ALTER USER elector ACCOUNT "+map[bool]string{true: "LOCK", false: "UNLOCK"}[on], kill)
		}),
	), func(e *operators.Election) *storeServer {
		s := newStoreServer(e, func() (*dbserver.Server, error) { return dbserver.MariaDB() })
		s.execMySQL("CREATE USER elector IDENTIFIED BY 'secret'", "GRANT ALL ON test.* TO elector")
		return s.addCandidates(func(addr string) string { return "mysql://elector:secret@" + addr + "/test" })
	})
}

// runCommand executes a Redis command as an operator on the first server.
func (s *storeServer) runCommand(args ...any) { s.runCommandAt(s.Server, args...) }

// runCommandAt executes a command as an operator of the given Redis server.
func (s *storeServer) runCommandAt(server *dbserver.Server, args ...any) {
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), DisableIdentity: true})
	defer client.Close()
	require.NoError(s.t, client.Do(s.t.Context(), args...).Err(), args)
}

// TestRedis_OperationsKeepOneLeader checks that an operation on a Redis server, such as a failover, does not lead to
// two leaders, and that a candidate leads afterwards. If there was no leader meanwhile, the log contains the reason.
func TestRedis_OperationsKeepOneLeader(t *testing.T) {
	t.Parallel()
	start := func(args ...string) func() (*dbserver.Server, error) {
		return func() (*dbserver.Server, error) {
			return dbserver.Redis(append([]string{"--user", "elector", "on", ">secret", "~*", "&*", "+@all"}, args...)...)
		}
	}
	kill := func(s *storeServer) {
		s.runCommand("CLIENT", "KILL", "TYPE", "normal")
		s.runCommand("CLIENT", "KILL", "TYPE", "pubsub")
	}
	operators.Test(t, operators.OfStore(
		operators.Operation[*storeServer]{Name: "Emptied", Reason: "the record of the election was deleted", Run: func(_ *operators.Election, s *storeServer) { s.runCommand("FLUSHALL") }},
		operators.InShort(operators.Harmless("ConnectionsKilled", kill)),
		operators.Harmless("IdleTimeout", func(s *storeServer) { s.runCommand("CONFIG", "SET", "timeout", "1") }),
		operators.Lasting("ReadOnly", "READONLY", func(s *storeServer, on bool) {
			if on {
				s.runCommand("REPLICAOF", "127.0.0.1", "1")
			} else {
				s.runCommand("REPLICAOF", "NO", "ONE")
			}
		}),
		operators.Lasting("Full", "OOM", func(s *storeServer, on bool) {
			s.runCommand("CONFIG", "SET", "maxmemory", map[bool]string{true: "1", false: "0"}[on])
		}),
		operators.Lasting("CredentialsRotated", "NOPERM", func(s *storeServer, on bool) {
			if on {
				s.runCommand("ACL", "SETUSER", "elector", "-@all")
			} else {
				s.runCommand("ACL", "SETUSER", "elector", "+@all")
			}
		}),
	), func(e *operators.Election) *storeServer {
		return newStoreServer(e, start()).addCandidates(func(addr string) string { return "redis://elector:secret@" + addr })
	})
	operators.Test(t, []operators.Operation[*storeServer]{
		// After the failure, the operator changes the address that the clients use so that it leads to the replica.
		// In this test the replica has all acknowledged writes, which Redis does not guarantee.
		{Name: "FailedOver", Reason: "failed", Run: func(e *operators.Election, s *storeServer) {
			s.runCommand("WAIT", 1, 0)
			require.NoError(e, s.Kill())
			e.WaitForNoLeader()
			s.runCommandAt(s.others[0], "REPLICAOF", "NO", "ONE")
			e.Networks.ConnectTo(s.others[0].Addr())
		}},
	}, func(e *operators.Election) *storeServer {
		s := newStoreServer(e, start())
		replica := dbserver.StartServer(e, start("--replicaof", "127.0.0.1", s.Port()))
		s.addCandidates(func(addr string) string { return "redis://elector:secret@" + addr + "?unsafe=failover" })
		s.others = append(s.others, replica)
		return s
	})
}

// withStream connects to NATS as an operator, and calls f with the name of the stream that contains the records of
// elections.
func (s *storeServer) withStream(f func(js jetstream.JetStream, name string) error) {
	conn, err := natsclient.Connect("nats://" + s.Addr())
	require.NoError(s.t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(s.t, err)
	require.NoError(s.t, f(js, "KV_leaderelection"))
}

// configure restarts the NATS server with another password and other permissions of the candidates. A restart is
// necessary, because a server whose arguments name its directory does not reload its configuration.
func (s *storeServer) configure(password, permissions string) {
	s.writeConfig(password, permissions)
	require.NoError(s.t, s.Restart())
}

func (s *storeServer) writeConfig(password, permissions string) {
	require.NoError(s.t, os.WriteFile(s.config, fmt.Appendf(nil, `
		authorization { users = [
			{user: operator, password: operator}
			{user: elector, password: %s, permissions: {%s}}
		] }
		no_auth_user: operator`, password, permissions), 0o600))
}

// TestNATS_OperationsKeepOneLeader checks that an operation on a NATS server, such as a failover, does not lead to
// two leaders, and that a candidate leads afterwards. If there was no leader meanwhile, the log contains the reason.
func TestNATS_OperationsKeepOneLeader(t *testing.T) {
	t.Parallel()
	operators.Test(t, operators.OfStore(
		operators.Operation[*storeServer]{Name: "Emptied", Short: true, Reason: "the record of the election was deleted", Run: func(e *operators.Election, s *storeServer) {
			s.withStream(func(js jetstream.JetStream, name string) error { return js.DeleteStream(e.Context(), name) })
		}},
		operators.Harmless("ConnectionsKilled", func(s *storeServer) { s.t.Networks.Drop() }),
		operators.Operation[*storeServer]{Name: "IdleTimeout", Run: func(e *operators.Election, _ *storeServer) { e.Networks.LimitIdle(operators.Timeout / 8) }},
		operators.Lasting("ReadOnly", "the server reports: nats: permissions violation", func(s *storeServer, on bool) {
			s.configure("secret", map[bool]string{true: "publish: {deny: [\"$KV.>\"]}", false: ""}[on])
		}),
		operators.Lasting("CredentialsRotated", "nats: Authorization Violation)", func(s *storeServer, on bool) {
			s.configure(map[bool]string{true: "another", false: "secret"}[on], "")
		}),
		operators.Lasting("Full", "maximum bytes exceeded", func(s *storeServer, on bool) {
			s.withStream(func(js jetstream.JetStream, name string) error {
				stream, err := js.Stream(s.t.Context(), name)
				if err != nil {
					return err
				}
				cfg := stream.CachedInfo().Config
				cfg.MaxBytes = map[bool]int64{true: 1, false: -1}[on]
				_, err = js.UpdateStream(s.t.Context(), cfg)
				return err
			})
		}),
	), func(e *operators.Election) *storeServer {
		s := &storeServer{config: filepath.Join(e.TempDir(), "nats.conf"), t: e}
		s.writeConfig("secret", "")
		s.Server = dbserver.StartServer(e, func() (*dbserver.Server, error) { return dbserver.NATS("--config", s.config) })
		return s.addCandidates(func(addr string) string { return "nats://elector:secret@" + addr })
	})
	server := func(e *operators.Election, s *storeServer, ofBucket bool) *dbserver.Server {
		var name string
		s.withStream(func(js jetstream.JetStream, bucket string) error {
			stream, err := js.Stream(e.Context(), bucket)
			if err == nil {
				name = stream.CachedInfo().Cluster.Leader
			}
			return err
		})
		for i, one := range append([]*dbserver.Server{s.Server}, s.others...) {
			if (name == fmt.Sprint("n", i)) == ofBucket {
				return one
			}
		}
		require.FailNow(e, "no such server", name)
		return nil
	}
	operators.Test(t, []operators.Operation[*storeServer]{
		// The server that fails does not have the only replica of the bucket. Candidates that used this server
		// connect to another server.
		{Name: "FailedOver", Run: func(e *operators.Election, s *storeServer) { require.NoError(e, server(e, s, false).Kill()) }},
		{Name: "BucketServerRestarted", Reason: "failed", Run: func(e *operators.Election, s *storeServer) {
			one := server(e, s, true)
			require.NoError(e, one.Kill())
			e.WaitForNoLeader()
			require.NoError(e, one.Start())
		}},
	}, func(e *operators.Election) *storeServer {
		all, err := dbserver.NATSCluster(3)
		require.NoError(e, err)
		for _, one := range all {
			e.Cleanup(func() { require.NoError(e, one.Close()) })
		}
		s := &storeServer{Server: all[0], others: all[1:], t: e}
		return s.addCandidates(func(addrs string) string { return "nats://" + addrs })
	})
}
