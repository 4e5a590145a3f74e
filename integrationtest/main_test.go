// Package integrationtest holds the tests that need real ZooKeeper servers.
package integrationtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	_ "github.com/go-leaderelection/leaderelection/integrationtest/docker" // used if an engine answers
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// shared is the single server of all tests that do not stop servers.
var shared *ensemble.Ensemble

func TestMain(m *testing.M) {
	if os.Getenv(processNode) != "" {
		os.Exit(candidateProcess())
	}
	flag.Parse()
	// Most tests wait for a timeout most of the time.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) (code int) {
	defer func() {
		// Every connection was waited for, so nothing may be left.
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	var err error
	if shared, err = startServers(1); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := errors.Join(shared.Close(), mortal.close(), trio.close()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	return m.Run()
}

// startServers starts an ensemble; the first one on a machine may have to build
// an image.
func startServers(n int) (*ensemble.Ensemble, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return ensemble.Start(ctx, ensemble.Config{
		Servers: n, TickTime: 200 * time.Millisecond,
		Properties: map[string]string{"maxSessionTimeout": fmt.Sprint(sessionTimeout.Milliseconds())},
	})
}

// breakable is an ensemble whose servers tests may stop. It is started by the
// first test that wants it and repaired after each.
type breakable struct {
	servers int

	mu sync.Mutex // of the test that uses it
	e  *ensemble.Ensemble
}

var (
	mortal = &breakable{servers: 1}
	trio   = &breakable{servers: 3}
)

// use gives the ensemble to one test after the other.
func (b *breakable) use(t *testing.T) *ensemble.Ensemble {
	t.Helper()
	b.mu.Lock()
	t.Cleanup(b.mu.Unlock)
	if b.e == nil {
		var err error
		b.e, err = startServers(b.servers)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for i := range b.servers {
				t.Logf("server %d:\n%s", i, b.e.Log(i))
			}
		}
		repair(t, b.e)
	})
	return b.e
}

// repair ends all faults of an ensemble, and waits until all of its servers can serve clients.
func repair(t *testing.T, e *ensemble.Ensemble) {
	t.Helper()
	for i := range e.Servers() {
		if e.Servers() > 1 {
			require.NoError(t, e.Heal(i))
		}
		require.NoError(t, e.Resume(i))
		require.NoError(t, e.Start(i))
	}
	ready(t, e)
}

// ready waits until all servers that can serve clients do.
func ready(t *testing.T, e *ensemble.Ensemble) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, e.Ready(ctx))
}

// startAgain starts server 0, which was killed, and lets the clients at it when it
// serves them. A server of 3.8 listens before it has its data, and a client that
// comes in between is never answered (a NullPointerException in its log, for
// removeCnxn); the client library waits ten of its read timeouts for the answer.
func startAgain(t *testing.T, e *ensemble.Ensemble, clients ...*client) {
	t.Helper()
	for _, c := range clients {
		c.link.cut()
	}
	require.NoError(t, e.Start(0))
	ready(t, e)
	for _, c := range clients {
		c.link.restore()
	}
}

func (b *breakable) close() error {
	if b.e == nil {
		return nil
	}
	return b.e.Close()
}
