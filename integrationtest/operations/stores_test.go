//go:build unix

package operations

import (
	"context"
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
	t *election
}

// startStore starts a server and two candidates. prepare creates what the candidates need; it may be
// nil. urlOf returns the address of the store for the address of the server.
func startStore(e *election, start func() (*dbserver.Server, error), prepare func(s *storeServer), urlOf func(addr string) string) *storeServer {
	s := &storeServer{Server: dbserver.StartServer(e, start), t: e}
	if prepare != nil {
		prepare(s)
	}
	for range 2 {
		opened, err := storeurl.Open(e.Context(), storeurl.Config{URL: urlOf(e.addNetwork(s.Addr())), Election: "operations"})
		require.NoError(e, err)
		e.Cleanup(opened.Close)
		store, err := opened.New()
		require.NoError(e, err)
		e.Cleanup(func() { require.NoError(e, store.Close()) })
		c, err := changefeed.NewElection(store, changefeed.WithHeartbeat(timeout*4/7), changefeed.WithLogger(e.logger()))
		require.NoError(e, err)
		e.add(c)
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
		time.Sleep(timeout / 2)
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
func (s *storeServer) execSQL(statements ...string) {
	conn, err := pgx.Connect(s.t.Context(), "postgres://postgres@"+s.Addr()+"/postgres?sslmode=disable")
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
		return startStore(e, func() (*dbserver.Server, error) { return dbserver.Postgres() }, func(s *storeServer) {
			s.execSQL("CREATE ROLE elector LOGIN", "GRANT CREATE ON SCHEMA public TO elector")
		}, func(addr string) string {
			return "postgres://elector@" + addr + "/postgres?sslmode=disable&unsafe=power-loss"
		})
	})
}

// do executes a command as an operator of Redis.
func (s *storeServer) do(args ...any) {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
	defer client.Close()
	require.NoError(s.t, client.Do(s.t.Context(), args...).Err(), args)
}

// TestRedis fails if an operation on a Redis server leads to two leaders, to none afterwards, or to
// none without a reason in the log.
func TestRedis(t *testing.T) {
	t.Parallel()
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
		return startStore(e, func() (*dbserver.Server, error) {
			return dbserver.Redis("--user", "elector", "on", ">secret", "~*", "&*", "+@all")
		}, nil, func(addr string) string { return "redis://elector:secret@" + addr })
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

// TestNATS fails if an operation on a NATS server leads to two leaders, to none afterwards, or to none
// without a reason in the log.
func TestNATS(t *testing.T) {
	t.Parallel()
	testOperations(t, storeOperations(
		operation[*storeServer]{name: "Emptied", short: true, reason: "the record of the election was deleted", run: func(e *election, s *storeServer) {
			s.stream(func(js jetstream.JetStream, name string) error { return js.DeleteStream(e.Context(), name) })
		}},
		harmless("ConnectionsKilled", func(s *storeServer) { s.t.networks.drop() }),
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
		return startStore(e, func() (*dbserver.Server, error) { return dbserver.NATS() }, nil, func(addr string) string { return "nats://" + addr })
	})
}
