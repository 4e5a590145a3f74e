package zkdial

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestOutage_LogsReasonAfterTwoSeconds checks that the reason of an outage is logged after two seconds and then
// at growing intervals, and that nothing is logged without an outage or after Close.
func TestOutage_LogsReasonAfterTwoSeconds(t *testing.T) {
	for name, c := range map[string]struct {
		fault, heal func(*zktest.Server)
		reason      string
	}{
		"refuses":         {(*zktest.Server).Stop, func(s *zktest.Server) { s.Restart(zktest.KeepTree) }, "connection refused"},
		"does not answer": {(*zktest.Server).Pause, (*zktest.Server).Resume, errWaiting.Error()},
	} {
		for _, begin := range []string{"at first", "later"} {
			t.Run(name+", "+begin, func(t *testing.T) {
				var log testenv.Buffer
				was := slog.Default()
				defer slog.SetDefault(was)
				slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
				synctest.Test(t, func(t *testing.T) {
					srv := zktest.Start(t)
					wait := func(d time.Duration) {
						time.Sleep(d)
						synctest.Wait()
					}
					if begin == "at first" {
						c.fault(srv)
					}
					conn := open(t, []string{srv.Name()}, 30*time.Second, WithDialer(srv.Dialer()))
					if begin == "later" {
						wait(time.Minute)
						c.fault(srv)
						srv.DropConnections()
					}
					wait(warnAfter - time.Second)
					require.Empty(t, log.String())
					wait(1010 * time.Millisecond)
					require.Contains(t, log.String(), "level=WARN")
					require.Contains(t, log.String(), "server="+srv.Name())
					require.Contains(t, log.String(), c.reason)
					wait(5 * time.Second)
					require.Equal(t, 1, strings.Count(log.String(), c.reason), "%s", &log)
					wait(time.Hour)
					n := strings.Count(log.String(), c.reason)
					require.Greater(t, n, 4, "%s", &log)
					require.Less(t, n, 12, "%s", &log)
					c.heal(srv)
					wait(30 * time.Second)
					require.Contains(t, log.String(), "level=INFO")
					log.Reset()
					wait(time.Minute)
					conn.Close()
					wait(time.Minute)
					require.Empty(t, log.String())
				})
			})
		}
	}
}

// countWarnings returns how many warnings a connection logs in d if each attempt fails with the next error.
func countWarnings(t *testing.T, d time.Duration, next func(attempt int) error) (n int) {
	synctest.Test(t, func(t *testing.T) {
		var log testenv.Buffer
		attempt := 0
		open(t, []string{"server"}, 30*time.Second, WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			WithDialer(func(string, string, time.Duration) (net.Conn, error) {
				attempt++
				return nil, next(attempt)
			}))
		time.Sleep(d)
		n = strings.Count(log.String(), "level=WARN")
	})
	return n
}

// TestOutage_LimitsWarningsOfVaryingText checks that a reason is not logged for each attempt if the text of the
// error contains the time or the local port.
func TestOutage_LimitsWarningsOfVaryingText(t *testing.T) {
	for name, next := range map[string]func(attempt int) error{
		"certificate": func(i int) error {
			return &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired, Detail: strings.Repeat("x", i)}}
		},
		"lookup": func(i int) error {
			return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: strings.Repeat("x", i), Name: "server"}}
		},
		"port":           func(i int) error { return fmt.Errorf("read 127.0.0.1:%d->127.0.0.2:2181: reset", 20000+i) },
		"several errors": func(i int) error { return fmt.Errorf("%w: %w", errAuth, fmt.Errorf("from port %d: %w", i, errBroken)) },
	} {
		t.Run(name, func(t *testing.T) {
			n := countWarnings(t, time.Minute, next)
			require.Positive(t, n)
			require.LessOrEqual(t, n, 4)
		})
	}
	require.NotEqual(t, reason(errors.New("a")), reason(errors.New("b")))
}

// TestOutage_LogsAfterManyReasons checks that a connection still logs outages after more different reasons than
// it remembers.
func TestOutage_LogsAfterManyReasons(t *testing.T) {
	next := func(i int) error { return errors.New(strings.Repeat("x", i)) }
	before, after := countWarnings(t, 10*time.Minute, next), countWarnings(t, 20*time.Minute, next)
	require.Greater(t, before, maxCauses)
	require.Less(t, before, maxCauses+10)
	require.Greater(t, after, before)
	require.Less(t, after, before+5)
}

// TestOutage_RepeatsThatServerIsNotZooKeeper checks that the outage is logged again and again if a program that
// answers is not a ZooKeeper server.
func TestOutage_RepeatsThatServerIsNotZooKeeper(t *testing.T) {
	for name, answer := range map[string]string{
		"HTTP":      "HTTP/1.1 400 Bad Request\r\n\r\n",
		"TLS alert": "\x15\x03\x03\x00\x02\x02\x32",
		"too short": "\x00\x00\x00\x04abcd",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testenv.Buffer
				conn := open(t, []string{"server"}, 30*time.Second, WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
					WithDialer(func(string, string, time.Duration) (net.Conn, error) {
						client, server := net.Pipe()
						go func() {
							defer server.Close()
							_, _ = server.Read(make([]byte, 100))
							_, _ = server.Write([]byte(answer))
						}()
						return client, nil
					}))
				time.Sleep(time.Hour)
				require.ErrorIs(t, connection.RecordOf(conn).Facts().Failure, errNotZooKeeper)
				require.Greater(t, strings.Count(log.String(), errNotZooKeeper.Error()), 4, "%s", &log)
			})
		})
	}
}
