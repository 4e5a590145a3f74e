// Package integrationtest tests elections on real ZooKeeper servers.
package integrationtest

import (
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	_ "github.com/go-leaderelection/leaderelection/integrationtest/docker" // registers Docker, which is the preferred backend
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// shared is the server for all tests that do not stop servers.
var shared *ensemble.Ensemble

func TestMain(m *testing.M) {
	flag.Parse()
	// Run four tests at the same time, because most of them wait for a timeout most of the time.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(ensemble.Tests(m, serverConfig(1), func(e *ensemble.Ensemble) (func() error, error) {
		shared = e
		return func() error { return errors.Join(oneServer.close(), threeServers.close()) }, nil
	}))
}

func serverConfig(servers int) ensemble.Config {
	return ensemble.Config{
		Servers: servers, TickTime: 200 * time.Millisecond,
		Properties: map[string]string{"maxSessionTimeout": fmt.Sprint(sessionTimeout.Milliseconds())},
	}
}

// faultyEnsemble is an ensemble whose servers tests may stop. The first test that uses the ensemble starts it, and
// each test repairs it before it returns.
type faultyEnsemble struct {
	servers int

	mu sync.Mutex // the test that uses the ensemble holds mu
	e  *ensemble.Ensemble
}

var (
	oneServer    = &faultyEnsemble{servers: 1}
	threeServers = &faultyEnsemble{servers: 3}
)

// acquire returns the ensemble, after waiting until no other test uses it.
func (f *faultyEnsemble) acquire(t *testing.T) *ensemble.Ensemble {
	t.Helper()
	f.mu.Lock()
	t.Cleanup(f.mu.Unlock)
	if f.e == nil {
		var err error
		f.e, err = ensemble.StartForTests(serverConfig(f.servers))
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		ensemble.LogServers(t, f.e)
		repairServers(t, f.e)
	})
	return f.e
}

func (f *faultyEnsemble) close() error {
	if f.e == nil {
		return nil
	}
	return f.e.Close()
}

// repairServers ends all faults of an ensemble, and waits until its servers serve clients.
func repairServers(t *testing.T, e *ensemble.Ensemble) {
	t.Helper()
	for i := range e.Servers() {
		if e.Servers() > 1 {
			require.NoError(t, e.Heal(i))
		}
		require.NoError(t, e.Resume(i))
		require.NoError(t, e.Start(i))
	}
	ensemble.WaitReady(t, e)
}

// restartServer starts server 0 after Kill, and lets the clients connect only when the server serves clients. A
// server of ZooKeeper 3.8 listens before it has loaded its data. It never answers a client that connects before that
// time (the log of the server contains a NullPointerException in removeCnxn), and the client library waits for the
// answer for ten read timeouts.
func restartServer(t *testing.T, e *ensemble.Ensemble, clients ...*client) {
	t.Helper()
	for _, c := range clients {
		c.Network.Cut()
	}
	require.NoError(t, e.Start(0))
	ensemble.WaitReady(t, e)
	for _, c := range clients {
		c.Network.Restore()
	}
}
