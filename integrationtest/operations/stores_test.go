//go:build unix

package operations

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storeurl"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// storeServer is the server of a changefeed's store, with two candidates.
type storeServer struct {
	*dbserver.Server
	others []*dbserver.Server // others are the standbys of the server, or the other members of its cluster.
	config string             // config is the file of the server's configuration, or empty.
	t      *election
}

// newStoreServer returns a server without candidates.
func newStoreServer(e *election, start func() (*dbserver.Server, error)) *storeServer {
	return &storeServer{Server: dbserver.StartServer(e, start), t: e}
}

// addCandidates starts two candidates. urlOf returns the address of the store for the addresses of the
// servers, which are separated by commas.
func (s *storeServer) addCandidates(urlOf func(addrs string) string) *storeServer {
	for range 2 {
		addrs := s.t.addNetwork(s.Addr())
		for _, other := range s.others {
			addrs += "," + s.t.addNetwork(other.Addr())
		}
		opened, err := storeurl.Open(s.t.Context(), storeurl.Config{URL: urlOf(addrs), Election: "operations"})
		require.NoError(s.t, err)
		s.t.Cleanup(opened.Close)
		store, err := opened.New()
		require.NoError(s.t, err)
		s.t.Cleanup(func() { require.NoError(s.t, store.Close()) })
		c, err := changefeed.NewElection(store, changefeed.WithHeartbeat(timeout*4/7), changefeed.WithLogger(s.t.logger()))
		require.NoError(s.t, err)
		s.t.add(c)
	}
	return s
}

// storeOperations returns the operations that are the same for all stores, and more.
func storeOperations(more ...operation[*storeServer]) []operation[*storeServer] {
	return append([]operation[*storeServer]{
		{name: "Restarted", reason: "feed failed", run: func(e *election, s *storeServer) {
			require.NoError(e, s.Kill())
			e.waitForNoLeader()
			require.NoError(e, s.Start())
		}},
		{name: "RestartedQuickly", run: func(e *election, s *storeServer) { require.NoError(e, s.Restart()) }},
		{name: "Restored", reason: "failed", run: func(e *election, s *storeServer) {
			backup, err := s.Backup()
			require.NoError(e, err)
			e.waitForLeader(time.Now().Add(timeout)) // The leader writes what the backup does not contain.
			require.NoError(e, s.Restore(backup))
		}},
		{name: "Paused", reason: "deadline exceeded", run: func(e *election, s *storeServer) {
			require.NoError(e, s.Freeze())
			e.waitForNoLeader()
			time.Sleep(timeout)
			s.Thaw()
		}},
		{name: "AddressChanged", reason: "failed", run: func(e *election, s *storeServer) {
			e.networks.disconnect()
			e.waitForNoLeader()
			e.networks.connectTo(s.Addr())
		}},
	}, more...)
}

// lasting is an operation that ends all leaderships until it is undone.
func lasting(name string, reason string, do func(s *storeServer, on bool)) operation[*storeServer] {
	return operation[*storeServer]{name: name, reason: reason, run: func(e *election, s *storeServer) {
		do(s, true)
		e.waitForNoLeader()
		e.waitForLog(reason)
		do(s, false)
	}}
}

// inShort makes an operation be tested without -operations.complete.
func inShort(o operation[*storeServer]) operation[*storeServer] {
	o.short = true
	return o
}

// harmless is an operation that no leadership needs to end for. It is repeated for two timeouts.
func harmless(name string, do func(s *storeServer)) operation[*storeServer] {
	return operation[*storeServer]{name: name, run: func(_ *election, s *storeServer) {
		for range 4 {
			do(s)
			time.Sleep(timeout / 2)
		}
	}}
}

// execSQL executes statements as the superuser.
func (s *storeServer) execSQL(statements ...string) { s.execSQLAt(s.Server, statements...) }

// execSQLAt executes statements as the superuser of a server.
func (s *storeServer) execSQLAt(server *dbserver.Server, statements ...string) {
	conn, err := pgx.Connect(s.t.Context(), "postgres://postgres@"+server.Addr()+"/postgres?sslmode=disable")
	require.NoError(s.t, err)
	defer conn.Close(context.Background())
	for _, sql := range statements {
		_, err := conn.Exec(s.t.Context(), sql)
		require.NoError(s.t, err, sql)
	}
}

// TestPostgres fails if an operation on a PostgreSQL server leads to two leaders, to none afterwards,
// or to none without a reason in the log. A disk that is full is simulated by a trigger.
func TestPostgres(t *testing.T) {
	t.Parallel()
	const terminate = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`
	createRole := []string{"CREATE ROLE elector LOGIN", "GRANT CREATE ON SCHEMA public TO elector"}
	testOperations(t, storeOperations(
		operation[*storeServer]{name: "Emptied", short: true, reason: "the record of the election was deleted", run: func(_ *election, s *storeServer) {
			s.execSQL("DROP TABLE leaderelection")
		}},
		harmless("ConnectionsKilled", func(s *storeServer) { s.execSQL(terminate) }),
		inShort(harmless("IdleTimeout", func(s *storeServer) {
			s.execSQL("ALTER SYSTEM SET idle_session_timeout = '500ms'", "SELECT pg_reload_conf()")
		})),
		lasting("ReadOnly", "read-only transaction", func(s *storeServer, on bool) {
			s.execSQL("ALTER SYSTEM SET default_transaction_read_only = "+map[bool]string{true: "on", false: "off"}[on], "SELECT pg_reload_conf()")
		}),
		lasting("Full", "No space left on device", func(s *storeServer, on bool) {
			if on {
				s.execSQL(`CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
						RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$`,
					`CREATE TRIGGER reject BEFORE INSERT OR UPDATE ON leaderelection FOR EACH ROW EXECUTE FUNCTION reject()`)
			} else {
				s.execSQL("DROP TRIGGER reject ON leaderelection")
			}
		}),
		lasting("CredentialsRotated", "not permitted to log in", func(s *storeServer, on bool) {
			s.execSQL("ALTER ROLE elector "+map[bool]string{true: "NOLOGIN", false: "LOGIN"}[on], terminate)
		}),
	), func(e *election) *storeServer {
		s := newStoreServer(e, func() (*dbserver.Server, error) { return dbserver.Postgres() })
		s.execSQL(createRole...)
		return s.addCandidates(func(addr string) string {
			return "postgres://elector@" + addr + "/postgres?sslmode=disable&unsafe=power-loss"
		})
	})
	testOperations(t, []operation[*storeServer]{
		{name: "FailedOver", reason: "failed", run: func(_ *election, s *storeServer) {
			require.NoError(s.t, s.Kill())
			s.execSQLAt(s.others[0], "SELECT pg_promote()")
		}},
	}, func(e *election) *storeServer {
		s := newStoreServer(e, func() (*dbserver.Server, error) { return dbserver.Postgres("synchronous_standby_names=FIRST 1 (a)") })
		s.others = append(s.others, dbserver.StartServer(e, func() (*dbserver.Server, error) { return dbserver.PostgresStandby(s.Server, "a") }))
		s.execSQL(append(createRole, "GRANT pg_read_all_stats TO elector")...)
		return s.addCandidates(func(addrs string) string {
			return "postgres://elector@" + addrs + "/postgres?sslmode=disable&target_session_attrs=read-write&unsafe=power-loss"
		})
	})
}

// do executes a command as an operator of Redis.
func (s *storeServer) do(args ...any) { s.doAt(s.Server, args...) }

// doAt executes a command as an operator of a server of Redis.
func (s *storeServer) doAt(server *dbserver.Server, args ...any) {
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), DisableIdentity: true})
	defer client.Close()
	require.NoError(s.t, client.Do(s.t.Context(), args...).Err(), args)
}

// TestRedis fails if an operation on a Redis server leads to two leaders, to none afterwards, or to
// none without a reason in the log.
func TestRedis(t *testing.T) {
	t.Parallel()
	start := func(args ...string) func() (*dbserver.Server, error) {
		return func() (*dbserver.Server, error) {
			return dbserver.Redis(append([]string{"--user", "elector", "on", ">secret", "~*", "&*", "+@all"}, args...)...)
		}
	}
	kill := func(s *storeServer) {
		s.do("CLIENT", "KILL", "TYPE", "normal")
		s.do("CLIENT", "KILL", "TYPE", "pubsub")
	}
	testOperations(t, storeOperations(
		operation[*storeServer]{name: "Emptied", reason: "the record of the election was deleted", run: func(_ *election, s *storeServer) { s.do("FLUSHALL") }},
		inShort(harmless("ConnectionsKilled", kill)),
		harmless("IdleTimeout", func(s *storeServer) { s.do("CONFIG", "SET", "timeout", "1") }),
		lasting("ReadOnly", "READONLY", func(s *storeServer, on bool) {
			if on {
				s.do("REPLICAOF", "127.0.0.1", "1")
			} else {
				s.do("REPLICAOF", "NO", "ONE")
			}
		}),
		lasting("Full", "OOM", func(s *storeServer, on bool) {
			s.do("CONFIG", "SET", "maxmemory", map[bool]string{true: "1", false: "0"}[on])
		}),
		lasting("CredentialsRotated", "NOPERM", func(s *storeServer, on bool) {
			if on {
				s.do("ACL", "SETUSER", "elector", "-@all")
			} else {
				s.do("ACL", "SETUSER", "elector", "+@all")
			}
		}),
	), func(e *election) *storeServer {
		return newStoreServer(e, start()).addCandidates(func(addr string) string { return "redis://elector:secret@" + addr })
	})
	testOperations(t, []operation[*storeServer]{
		// The name or the address that the clients use is given to the replica. It has all acknowledged
		// writes here, which Redis does not guarantee.
		{name: "FailedOver", reason: "failed", run: func(e *election, s *storeServer) {
			s.do("WAIT", 1, 0)
			require.NoError(e, s.Kill())
			e.waitForNoLeader()
			s.doAt(s.others[0], "REPLICAOF", "NO", "ONE")
			e.networks.connectTo(s.others[0].Addr())
		}},
	}, func(e *election) *storeServer {
		s := newStoreServer(e, start())
		replica := dbserver.StartServer(e, start("--replicaof", "127.0.0.1", s.Port()))
		s.addCandidates(func(addr string) string { return "redis://elector:secret@" + addr + "?unsafe=failover" })
		s.others = append(s.others, replica)
		return s
	})
}

// stream calls f with the name of the stream that contains the records.
func (s *storeServer) stream(f func(js jetstream.JetStream, name string) error) {
	conn, err := natsclient.Connect("nats://" + s.Addr())
	require.NoError(s.t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(s.t, err)
	require.NoError(s.t, f(js, "KV_leaderelection"))
}

// configure restarts the server with a password and permissions of the candidates. A server whose
// arguments name its directory does not reload its configuration.
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

// TestNATS fails if an operation on a NATS server leads to two leaders, to none afterwards, or to none
// without a reason in the log.
func TestNATS(t *testing.T) {
	t.Parallel()
	testOperations(t, storeOperations(
		operation[*storeServer]{name: "Emptied", short: true, reason: "the record of the election was deleted", run: func(e *election, s *storeServer) {
			s.stream(func(js jetstream.JetStream, name string) error { return js.DeleteStream(e.Context(), name) })
		}},
		harmless("ConnectionsKilled", func(s *storeServer) { s.t.networks.drop() }),
		operation[*storeServer]{name: "IdleTimeout", run: func(e *election, _ *storeServer) { e.networks.limitIdle(timeout / 8) }},
		lasting("ReadOnly", "the server reports: nats: permissions violation", func(s *storeServer, on bool) {
			s.configure("secret", map[bool]string{true: "publish: {deny: [\"$KV.>\"]}", false: ""}[on])
		}),
		lasting("CredentialsRotated", "the server reports: nats: Authorization Violation", func(s *storeServer, on bool) {
			s.configure(map[bool]string{true: "another", false: "secret"}[on], "")
		}),
		lasting("Full", "maximum bytes exceeded", func(s *storeServer, on bool) {
			s.stream(func(js jetstream.JetStream, name string) error {
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
	), func(e *election) *storeServer {
		s := &storeServer{config: filepath.Join(e.TempDir(), "nats.conf"), t: e}
		s.writeConfig("secret", "")
		s.Server = dbserver.StartServer(e, func() (*dbserver.Server, error) { return dbserver.NATS("--config", s.config) })
		return s.addCandidates(func(addr string) string { return "nats://elector:secret@" + addr })
	})
	server := func(e *election, s *storeServer, ofBucket bool) *dbserver.Server {
		var name string
		s.stream(func(js jetstream.JetStream, bucket string) error {
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
	testOperations(t, []operation[*storeServer]{
		// The only replica of the bucket is on another server, to which the candidates connect if they
		// were connected to this one.
		{name: "FailedOver", run: func(e *election, s *storeServer) { require.NoError(e, server(e, s, false).Kill()) }},
		{name: "BucketServerRestarted", reason: "failed", run: func(e *election, s *storeServer) {
			one := server(e, s, true)
			require.NoError(e, one.Kill())
			e.waitForNoLeader()
			require.NoError(e, one.Start())
		}},
	}, func(e *election) *storeServer {
		all, err := dbserver.NATSCluster(3)
		require.NoError(e, err)
		for _, one := range all {
			e.Cleanup(func() { require.NoError(e, one.Close()) })
		}
		s := &storeServer{Server: all[0], others: all[1:], t: e}
		return s.addCandidates(func(addrs string) string { return "nats://" + addrs })
	})
}
