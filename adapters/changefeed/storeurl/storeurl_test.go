package storeurl_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storeurl"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

func TestMain(m *testing.M) {
	// The driver of RethinkDB leaks this goroutine if it cannot connect.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/hailocab/go-hostpool.(*epsilonGreedyHostPool).epsilonGreedyDecay"))
}

// serve starts a server that handles each connection, which is then closed, and returns its address.
func serve(t testing.TB, handle func(net.Conn)) (address string) {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	t.Cleanup(func() { server.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				handle(conn)
			})
		}
	})
	return server.Addr().String()
}

// newStore returns a store, which is closed when the test ends.
func newStore(t testing.TB, cfg storeurl.Config) changefeed.Store {
	t.Helper()
	cfg.Election = "jobs"
	opener, err := storeurl.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { opener.Close() })
	store, err := opener.NewStore()
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	return store
}

// TestOpen_RejectsInvalidAddress checks that Open and Check reject an invalid address, with an error that contains
// the reason and not the password.
func TestOpen_RejectsInvalidAddress(t *testing.T) {
	for _, c := range []struct{ url, election, text string }{
		{"", "jobs", "expected one of"},
		{"oracle://db", "jobs", `"oracle:"`},
		{"postgres://app:secret@db:port/x", "jobs", "address"},
		{"nats://", "jobs", "no server"},
		{"redis://", "jobs", "no server"},
		{"nats://host?table=x", "jobs", `"table"`},
		{"memory:", "//", "the name of the election is empty"},
		{"zookeeper://me:secret@host", "jobs", "use package leaderelection (elector: --backend zookeeper"},
		{"etcd://host", "jobs", "use package leaderelection/adapters/etcd"},
		{"etcds://me:secret@host", "jobs", "--etcd-endpoints https://host:port"},
		{"redis://:secret@host/notanumber", "jobs", ""},
		{"redis://:secret@host:65536", "jobs", "the port is not a number from 1 to 65535"},
		{"mongodb://me:secret@host", "jobs", "no database"},
		{"redis://host/0?tabel=x", "jobs", "tabel"},
		{"nats://host?bucket=b&replica=3", "jobs", `"replica"`},
		{"redis://:secret@host?unsafe=fire", "jobs", "failover, power-loss, restart"},
		{"redis://:secret@host?unsafe=", "jobs", `""`},
		{"postgres://app:secret/x@db", "jobs", "not a valid URL"},
		{"redis://:%secret@host", "jobs", "not a valid URL"},
		{"postgres://app@db/x?password=a#secret", "jobs", "%23"},
		{"postgres:app:secret@db", "jobs", "no server"},
		{"postgres://app@db/x?password=secret&connect_timeout=soon", "jobs", "connect_timeout"},
		{"postgres://app@db/x?Password=secret&pool_max_conns=x", "jobs", "pool_max_conns"},
		{"postgres://app@db/x?sslpassword=secret&connect_timeout=soon", "jobs", "connect_timeout"},
		{"mongodb://me@host/db?tlsCertificateKeyFilePassword=secret&connectTimeoutMS=soon", "jobs", "connectTimeoutMS"},
		{"memory:app:secret@db?password=secret", "jobs", "password"},
		{"mysql://app:secret@127.0.0.1", "jobs", "no database: expected mysql://host/database"},
		{"mysql://app:secret@127.0.0.1/db?password=secret", "jobs", `unknown parameter "password"`},
		{"mysql://app@127.0.0.1/db?allowCleartextPasswords=true", "jobs", `"allowCleartextPasswords"`},
		{"mysql://app@127.0.0.1/db?tls=maybe", "jobs", "tls is not true"},
		{"mysql://app@127.0.0.1,127.0.0.2/db", "jobs", "one server"},
		{"mysql://app@127.0.0.1/db?poll=0", "jobs", "poll"},
		{"mysql://app:secret@127.0.0.1/db?timeout=soon", "jobs", "soon"},
		{"postgres://app:secret@127.0.0.1/db?poll=often", "jobs", "poll"},
		{"mysql://app:secret@host/db", "jobs", "the password of MySQL would be sent to host"},
		{"mariadb://app:secret@host:3306/db?tls=preferred", "jobs", "AllowPlainCredentials"},
		{"mariadb://app:secret@host/db?tls=false", "jobs", "AllowPlainCredentials"},
		{"redis://host?password=secret", "jobs", "password"},
		{"nats://host?password=secret", "jobs", "password"},
		{"kubernetes://", "jobs", "no server"},
		{"kubernetes://team/x", "jobs", "expected kubernetes://namespace"},
		{"kubernetes://:secret@team", "jobs", "expected kubernetes://namespace"},
		{"kubernetes://Team_1", "jobs", "namespace"},
		{"kubernetes://team", "jobs/report", "name of a Lease"},
		{"kubernetes://team?context=x", "jobs", "kubeconfig"},
		{"kubernetes://team?unsafe=failover", "jobs", "no risks"},
		{"kubernetes://team?name=x", "jobs", `"name"`},
		{"memory:?unsafe=failover", "jobs", "no risks to accept"},
		{"redis://me:secret@host", "jobs", "AllowPlainCredentials"},
		{"redis://:secret@host", "jobs", "the password of Redis would be sent to host"},
		{"redis://:secret@localhost.example.com", "jobs", "AllowPlainCredentials"},
		{"nats://me:secret@host", "jobs", "the password or token of NATS"},
		{"nats://secret@host", "jobs", "--allow-plain-credentials"},
		{"nats://me:secret@localhost,host", "jobs", "would be sent to host"},
		{"mongodb://me:secret@host/db", "jobs", "MongoDB"},
		{"mongodb://me:secret@host/db?tls=false", "jobs", "MongoDB"},
		{"mongodb+srv://me:secret@host/db?tls=false", "jobs", "MongoDB"},
		{"mongodb://me:secret@127.0.0.1,host/db", "jobs", "would be sent to host"},
		{"mongodb://127.0.0.1/db?tls=true&ssl=false", "jobs", "must be equivalent"},
		{"mongodb://me:secret@127.0.0.1/db", "jobs", "the servers that 127.0.0.1 names: add directConnection=true"},
		{"mongodb://me:secret@localhost/db?directConnection=false&replicaSet=rs", "jobs", "directConnection=true"},
		{"mongodb+srv://me:secret@localhost/db?tls=false&directConnection=true", "jobs", "use mongodb:// with one host and directConnection=true"},
		{"mongodb://me:secret@127.0.0.1:1,localhost:2/db", "jobs", "use mongodb:// with one host and directConnection=true"},
	} {
		cfg := storeurl.Config{URL: c.url, Election: c.election}
		_, err := storeurl.Open(t.Context(), cfg)
		for _, err := range []error{err, storeurl.Check(cfg)} {
			require.ErrorIs(t, err, leaderelection.ErrInvalid, c.url)
			require.ErrorContains(t, err, c.text, c.url)
			require.NotContains(t, err.Error(), "secret", c.url)
		}
	}
}

// TestCheck_AcceptsProtectedCredentials checks that Check accepts an address whose credentials are sent with
// TLS, or to this machine only, or without TLS because the user has permitted that.
func TestCheck_AcceptsProtectedCredentials(t *testing.T) {
	for _, c := range []storeurl.Config{
		{URL: "redis://host"},
		{URL: "redis://:secret@127.0.0.1"},
		{URL: "redis://:secret@[::1]:6379"},
		{URL: "redis://:secret@0.0.0.0"},
		{URL: "rediss://:secret@host"},
		{URL: "redis://:secret@host", TLS: new(tls.Config)},
		{URL: "redis://:secret@host", AllowPlainCredentials: true},
		{URL: "nats://me:secret@localhost:4222,127.0.0.1:4222"},
		{URL: "tls://me:secret@host"},
		{URL: "nats://secret@host", TLS: new(tls.Config)},
		{URL: "nats://secret@host", AllowPlainCredentials: true},
		{URL: "mongodb://host/db"},
		{URL: "mongodb://127.0.0.1/db"},
		{URL: "mongodb://me:secret@127.0.0.1/db?directConnection=true"},
		{URL: "mongodb://me:secret@127.0.0.1/db?loadBalanced=true"},
		{URL: "mongodb://me:secret@127.0.0.1/db", AllowPlainCredentials: true},
		{URL: "mongodb://me:secret@host/db?tls=true"},
		{URL: "mongodb+srv://me:secret@host/db"},
		{URL: "mongodb://me:secret@host/db", TLS: new(tls.Config)},
		{URL: "mongodb://me:secret@host/db", AllowPlainCredentials: true},
		{URL: "mysql://me@host/db"},
		{URL: "mysql://me:secret@[::1]/db?tls=preferred"},
		{URL: "mariadb://me:secret@host/db?tls=true"},
		{URL: "mysql://me:secret@host/db?tls=skip-verify"},
		{URL: "mysql://me:secret@host/db", TLS: new(tls.Config)},
		{URL: "mysql://me:secret@host/db", AllowPlainCredentials: true},
		{URL: "postgres://me:secret@host/db"}, // the default is verify-full
		{URL: "postgres://me:secret@host/db?sslmode=disable"},
	} {
		c.Election = "jobs"
		require.NoError(t, storeurl.Check(c), c.URL)
	}
	for _, parameter := range []string{"sslmode=disable", "sslmode=allow", "sslmode=prefer"} {
		err := storeurl.Check(storeurl.Config{URL: "postgres://me@127.0.0.1/db?" + parameter, Election: "jobs", TLS: new(tls.Config)})
		require.ErrorIs(t, err, leaderelection.ErrInvalid)
		require.ErrorContains(t, err, parameter+" permits connections without TLS")
	}
	for _, parameter := range []string{"tls=false", "tls=preferred"} {
		err := storeurl.Check(storeurl.Config{URL: "mysql://127.0.0.1/db?" + parameter, Election: "jobs", TLS: new(tls.Config)})
		require.ErrorContains(t, err, parameter+" permits connections without TLS")
	}
	for _, parameter := range []string{"tls=false", "ssl=false"} {
		err := storeurl.Check(storeurl.Config{URL: "mongodb://127.0.0.1/db?" + parameter, Election: "jobs", TLS: new(tls.Config)})
		require.ErrorContains(t, err, parameter)
	}
}

// TestOpen_PostgresRejectsDowngradeOfTLS checks that a password is not sent to a server that answers that it
// does not support TLS, unless all servers are on this machine or the address contains sslmode.
func TestOpen_PostgresRejectsDowngradeOfTLS(t *testing.T) {
	for mode, sent := range map[string]bool{"": false, "sslmode=": false, "sslmode=prefer": true, "sslmode=disable": true, "sslmode=require": false} {
		passwords := make(chan string, 1)
		_, port, err := net.SplitHostPort(servePostgres(t, passwords))
		require.NoError(t, err)
		// The second server is not on this machine, so the login must be protected. A connection to it fails immediately.
		cfg := storeurl.Config{URL: "postgres://me:secret@127.0.0.1:" + port + ",255.255.255.255:1/db?" + mode, Election: "jobs"}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		opener, err := storeurl.Open(ctx, cfg)
		require.NoError(t, err)
		store, err := opener.NewStore()
		require.NoError(t, err)
		_, err = store.Read(ctx)
		require.Error(t, err)
		require.NotErrorIs(t, err, context.DeadlineExceeded, mode)
		require.NoError(t, store.Close())
		opener.Close()
		require.Equal(t, sent, len(passwords) > 0, "%q: %v", mode, err)
	}
}

// servePostgres starts a server without TLS that requests the password in clear text, and then closes the connection.
func servePostgres(t *testing.T, passwords chan<- string) (address string) {
	return serve(t, func(conn net.Conn) {
		backend := pgproto3.NewBackend(conn, conn)
		m, err := backend.ReceiveStartupMessage()
		if _, ok := m.(*pgproto3.SSLRequest); ok && err == nil {
			if _, err := conn.Write([]byte("N")); err != nil {
				return
			}
			_, err = backend.ReceiveStartupMessage()
		}
		if err != nil {
			return
		}
		backend.Send(&pgproto3.AuthenticationCleartextPassword{})
		if backend.Flush() != nil || backend.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
			return
		}
		if m, err := backend.Receive(); err == nil {
			select {
			case passwords <- m.(*pgproto3.PasswordMessage).Password:
			default:
			}
		}
	})
}

// TestOpen_NATSUserWithoutPasswordIsToken checks that the user in an address of NATS is sent as a token
// if the address contains no password.
func TestOpen_NATSUserWithoutPasswordIsToken(t *testing.T) {
	lines := make(chan string, 10)
	address := serve(t, func(conn net.Conn) {
		fmt.Fprint(conn, "INFO {\"server_id\":\"x\",\"version\":\"2.10.0\",\"proto\":1,\"max_payload\":1048576,\"auth_required\":true}\r\n")
		line, _ := bufio.NewReader(conn).ReadString('\n')
		select {
		case lines <- line:
		default:
		}
	})
	newStore(t, storeurl.Config{URL: "nats://secret@" + address})
	require.Contains(t, <-lines, `"auth_token":"secret"`)
}

// TestOpen_NATSNoCredentialsToDiscoveredServer checks that credentials are not sent without TLS to a server
// that a local server names, unless AllowPlainCredentials is set.
func TestOpen_NATSNoCredentialsToDiscoveredServer(t *testing.T) {
	for _, allow := range []bool{false, true} {
		// Each server names the other server, and closes a connection when the client has logged in.
		var logins [2]chan struct{}
		var addresses [2]string
		named := make(chan struct{})
		for i := range addresses {
			logins[i] = make(chan struct{}, 100)
			addresses[i] = serve(t, func(conn net.Conn) {
				<-named
				fmt.Fprintf(conn, "INFO {\"server_id\":\"x\",\"version\":\"2.10.0\",\"proto\":1,\"max_payload\":1048576,\"connect_urls\":[%q,%q]}\r\n", addresses[0], addresses[1])
				if line, _ := bufio.NewReader(conn).ReadString('\n'); strings.HasPrefix(line, "CONNECT ") {
					fmt.Fprint(conn, "PONG\r\n")
					logins[i] <- struct{}{}
				}
			})
		}
		close(named)
		opener, err := storeurl.Open(t.Context(), storeurl.Config{URL: "nats://me:secret@" + addresses[0], Election: "jobs", AllowPlainCredentials: allow})
		require.NoError(t, err)
		if allow {
			<-logins[1]
		} else {
			for range 3 { // Wait for several logins, because the client tries its servers in turn.
				<-logins[0]
			}
			require.Empty(t, logins[1])
		}
		opener.Close()
	}
}

// TestOpen_RedisServerCannotMoveClient checks that the client of a local server, to which it sends a password
// without TLS, does not permit that server to move the connection to another server.
func TestOpen_RedisServerCannotMoveClient(t *testing.T) {
	for password, permits := range map[string]bool{"": true, ":secret@": false} {
		commands := make(chan string, 1)
		var once sync.Once // only the first connection is served, so further attempts of the client fail
		address := serve(t, func(conn net.Conn) {
			once.Do(func() {
				var all strings.Builder
				lines := bufio.NewScanner(conn)
				for lines.Scan() && !strings.EqualFold(lines.Text(), "evalsha") {
					all.WriteString(lines.Text() + " ")
					if strings.HasPrefix(lines.Text(), "*") { // this line begins a command
						reply := "+OK\r\n"
						if strings.Count(all.String(), "*") == 1 {
							reply = "%1\r\n$5\r\nproto\r\n:3\r\n" // this is the reply to HELLO
						}
						fmt.Fprint(conn, reply)
					}
				}
				commands <- all.String()
			})
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		require.Error(t, read(ctx, "redis://"+password+address))
		sent := <-commands
		require.Contains(t, strings.ToUpper(sent), "HELLO")
		require.Equal(t, permits, strings.Contains(strings.ToUpper(sent), "MAINT_NOTIFICATIONS"), sent)
	}
}

// TestCheck_NamesMissingBuildTag checks that the error for a driver that a build tag adds names the tag.
func TestCheck_NamesMissingBuildTag(t *testing.T) {
	err := storeurl.Check(storeurl.Config{URL: "rethinkdb://127.0.0.1/db", Election: "jobs"})
	if hasRethinkDB {
		require.NoError(t, err)
		err = storeurl.Check(storeurl.Config{URL: "rethinkdb://me:secret@host/db", Election: "jobs"})
		require.ErrorContains(t, err, "the password of RethinkDB")
		err = storeurl.Check(storeurl.Config{URL: "rethinkdb://host/db?tabel=x", Election: "jobs"})
		require.ErrorContains(t, err, `"tabel"`)
		return
	}
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	require.ErrorContains(t, err, "-tags rethinkdb")
}

// hasRethinkDB reports whether the tests were built with the build tag rethinkdb.
var hasRethinkDB = slices.Contains(storeurl.Schemes(), "rethinkdb")

// TestOpen_AcceptsValidAddresses checks that valid addresses are accepted. The test needs no servers, because the
// drivers connect when they send the first request.
func TestOpen_AcceptsValidAddresses(t *testing.T) {
	for _, url := range []string{
		"memory:",
		"postgres://me:secret@127.0.0.1:1/db?table=apps.elections&sslmode=disable", "redis://:secret@127.0.0.1:1/3",
		"postgres://127.0.0.1:1/db?poll=1s", "mysql://me:secret@127.0.0.1:1/db?table=apps.elections&wsrep_sync_wait=1", "mariadb://127.0.0.1:1/db?poll=1s",
		"nats://127.0.0.1:1?bucket=b",
		"mongodb://me:secret@127.0.0.1:1/db?collection=c&authSource=admin&directConnection=true",
	} {
		t.Run(url, func(t *testing.T) {
			opener, err := storeurl.Open(t.Context(), storeurl.Config{URL: url, Election: "/jobs/report"})
			require.NoError(t, err)
			store, err := opener.NewStore()
			require.NoError(t, err)
			require.NoError(t, store.Close())
			require.NoError(t, opener.Close())
			require.NoError(t, opener.Close(), "the second call of Close")
		})
	}
}

// TestOpen_AcceptsGivenRisks checks that Open accepts risks in the address and in Config, and rejects an
// unknown risk, and any risk of a store that has none.
func TestOpen_AcceptsGivenRisks(t *testing.T) {
	for _, c := range []struct {
		url    string
		unsafe []changefeed.Risk
		valid  bool
	}{
		{"redis://127.0.0.1:1", []changefeed.Risk{changefeed.RiskFailover}, true},
		{"redis://127.0.0.1:1?unsafe=restart,power-loss&unsafe=failover", []changefeed.Risk{changefeed.RiskFailover}, true},
		{"redis://127.0.0.1:1", []changefeed.Risk{"fire"}, false},
		{"memory:", []changefeed.Risk{changefeed.RiskFailover}, false},
	} {
		opener, err := storeurl.Open(t.Context(), storeurl.Config{URL: c.url, Election: "jobs", Unsafe: c.unsafe})
		if c.valid {
			require.NoError(t, err, c.url)
			opener.Close()
		} else {
			require.ErrorIs(t, err, leaderelection.ErrInvalid, c.url)
		}
	}
}

// TestOpen_RedisReleasesConnectionIfContextIsDone checks that a request to a server that does not respond
// releases its connection when its context is done, and not only at the timeout of the client.
func TestOpen_RedisReleasesConnectionIfContextIsDone(t *testing.T) {
	closed := make(chan struct{}, 10)
	address := serve(t, func(conn net.Conn) {
		_, _ = io.Copy(io.Discard, conn) // until the client closes the connection
		closed <- struct{}{}
	})
	store := newStore(t, storeurl.Config{URL: "redis://" + address + "?read_timeout=1h"})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := store.Read(ctx)
	require.Error(t, err)
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		require.Fail(t, "the connection stays open")
	}
}

// TestOpen_ErrorNamesServerThatDoesNotAnswer checks that an error of a store whose server does not answer
// contains the server and a known reason, and that Open waits no longer than its context.
func TestOpen_ErrorNamesServerThatDoesNotAnswer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { silent.Close() }) // Close also closes the connections that were not accepted
	for _, url := range []string{"mongodb://%s/db", "nats://%s", "postgres://me@%s/db?sslmode=disable", "mysql://me@%s/db", "redis://%s", "rethinkdb://%s/db"} {
		if strings.HasPrefix(url, "rethinkdb") && !hasRethinkDB {
			continue
		}
		for _, server := range []struct{ address, reason string }{
			{"127.0.0.1:1", "refused"}, {silent.Addr().String(), context.DeadlineExceeded.Error()},
		} {
			t.Run(url+" "+server.reason, func(t *testing.T) {
				t.Parallel()
				if strings.HasPrefix(url, "nats") && server.reason == "refused" {
					server.reason = "no connection to a server" // the client of NATS does not say which server it is
				}
				for {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					err := read(ctx, fmt.Sprintf(url, server.address))
					require.ErrorContains(t, err, server.address)
					if strings.Contains(err.Error(), server.reason) {
						return
					}
					require.ErrorIs(t, err, context.DeadlineExceeded, "the machine was too slow for a reason")
				}
			})
		}
	}
}

// TestLogDrivers_PassesMessagesToLogger checks that the messages that the driver of Redis prints are passed
// to the logger.
func TestLogDrivers_PassesMessagesToLogger(t *testing.T) {
	var log testenv.Buffer
	storeurl.LogDrivers(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	t.Cleanup(func() { storeurl.LogDrivers(slog.New(slog.DiscardHandler)) })
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, read(ctx, "redis://127.0.0.1:1"))
		return strings.Contains(log.String(), "refused")
	}, time.Minute, time.Millisecond)
}

// read opens an address and reads the record.
func read(ctx context.Context, url string) error {
	opener, err := storeurl.Open(ctx, storeurl.Config{URL: url, Election: "jobs"})
	if err != nil {
		return err
	}
	defer opener.Close()
	store, err := opener.NewStore()
	if err != nil {
		return err
	}
	defer store.Close()
	_, err = store.Read(ctx)
	return err
}

// TestOpen_ReplacesPasswordsOfPostgresURL checks that Config.Password replaces both passwords that the
// URL can contain.
func TestOpen_ReplacesPasswordsOfPostgresURL(t *testing.T) {
	passwords := make(chan string, 1)
	store := newStore(t, storeurl.Config{
		URL: "postgres://app:old@" + servePostgres(t, passwords) + "/db?sslmode=disable&password=older", Password: "new",
	})
	_, err := store.Read(t.Context())
	require.Error(t, err, "the server closes the connection")
	require.Equal(t, "new", <-passwords)
}

// TestOpen_MemoryStoresShareRecord checks that the stores of one Opener share the record.
func TestOpen_MemoryStoresShareRecord(t *testing.T) {
	opener, err := storeurl.Open(t.Context(), storeurl.Config{URL: "memory:", Election: "jobs"})
	require.NoError(t, err)
	defer opener.Close()
	a, err := opener.NewStore()
	require.NoError(t, err)
	defer a.Close()
	b, err := opener.NewStore()
	require.NoError(t, err)
	defer b.Close()
	require.NoError(t, a.Create(t.Context(), changefeed.Record{Epoch: "e"}))
	record, err := b.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, "e", record.Epoch)
}

// TestOpen_SendsOnlyTLSHandshake checks that a client with a TLS configuration sends nothing but a handshake,
// and tries the second server of an address.
func TestOpen_SendsOnlyTLSHandshake(t *testing.T) {
	for _, c := range []struct{ name, scheme, otherServers string }{
		{"postgres", "postgres", ""},
		{"postgres, first server down", "postgres", "127.0.0.1:1,"},
		{"redis", "redis", ""},
		{"mongodb", "mongodb", ""},
		{"rethinkdb", "rethinkdb", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.scheme == "rethinkdb" && !hasRethinkDB {
				t.Skip("built without the tag rethinkdb")
			}
			first := make(chan byte, 1)
			address := serve(t, func(conn net.Conn) {
				_ = conn.SetReadDeadline(time.Now().Add(time.Second))
				b := make([]byte, 8)
				if n, _ := conn.Read(b); n > 0 {
					select {
					// The first byte must be that of a TLS handshake, or of the packet by which
					// PostgreSQL's client requests TLS.
					case first <- map[bool]byte{true: 0x16, false: b[0]}[c.scheme == "postgres" && n == 8 && b[4] == 4 && b[5] == 0xd2]:
					default:
					}
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			opener, err := storeurl.Open(ctx, storeurl.Config{
				URL: c.scheme + "://" + c.otherServers + address + "/1", Election: "jobs", TLS: &tls.Config{MinVersion: tls.VersionTLS12},
			})
			if err == nil {
				defer opener.Close()
				store, err := opener.NewStore()
				require.NoError(t, err)
				defer store.Close()
				var reading sync.WaitGroup
				defer reading.Wait()
				defer cancel()
				reading.Go(func() {
					// Retry: on a busy machine, a connection can be closed before the client has sent anything.
					for ctx.Err() == nil {
						_, _ = store.Read(ctx)
					}
				})
			}
			select {
			case b := <-first:
				require.EqualValues(t, 0x16, b, "a handshake")
			case <-time.After(20 * time.Second):
				require.Fail(t, "no client has connected")
			}
		})
	}
}

// TestRedacted_ContainsNoPassword checks that Redacted returns an address without its password.
func TestRedacted_ContainsNoPassword(t *testing.T) {
	require.Equal(t, "nats://xxxxx@host", storeurl.Redacted("nats://secret@host"))
}

// TestNewElection_ReturnsErrUnreachableIfRefused checks that NewElection returns ErrUnreachable when the server
// of a store refuses connections: programs try again after that error.
func TestNewElection_ReturnsErrUnreachableIfRefused(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c,
		clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c}}]}`), 0o600))
	urls := map[string]string{"kubernetes": "kubernetes://team?kubeconfig=" + kubeconfig, "memory": ""}
	for _, scheme := range storeurl.Schemes() {
		url, ok := urls[scheme]
		switch {
		case ok && url == "", strings.HasSuffix(scheme, "+srv"): // skip drivers that have no server, or that need a name server
			continue
		case strings.HasPrefix(scheme, "redis"):
			url = scheme + "://127.0.0.1:1"
		case !ok:
			url = scheme + "://127.0.0.1:1/jobs"
		}
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			opener, err := storeurl.Open(t.Context(), storeurl.Config{URL: url, Election: "jobs"})
			if err == nil {
				defer opener.Close()
				store, storeErr := opener.NewStore()
				require.NoError(t, storeErr)
				defer store.Close()
				_, err = changefeed.NewElection(store)
			}
			require.ErrorIs(t, err, leaderelection.ErrUnreachable)
			require.NotErrorIs(t, err, changefeed.ErrUnsuitable)
		})
	}
}
