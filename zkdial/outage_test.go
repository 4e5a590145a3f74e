package zkdial

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// lockedBuffer is a buffer that several goroutines use.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func (b *lockedBuffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buffer.Reset()
}

// TestOutage_IsLogged fails if a program does not print after two seconds why it has no session, if it
// prints the same reason too often, or if it prints something without an outage or after Close.
func TestOutage_IsLogged(t *testing.T) {
	for name, c := range map[string]struct {
		fault, heal func(*zktest.Server)
		reason      string
	}{
		"refuses":         {(*zktest.Server).Stop, func(s *zktest.Server) { s.Restart(zktest.KeepTree) }, "connection refused"},
		"does not answer": {(*zktest.Server).Pause, (*zktest.Server).Resume, errWaiting.Error()},
	} {
		for _, begin := range []string{"at first", "later"} {
			t.Run(name+", "+begin, func(t *testing.T) {
				var log lockedBuffer
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
					conn, _, err := Connect([]string{srv.Name()}, 30*time.Second, WithDialer(srv.Dialer()))
					require.NoError(t, err)
					if begin == "later" {
						wait(time.Minute)
						c.fault(srv)
						srv.DropConnections()
					}
					wait(quiet - time.Second)
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
