// Package harness contains what the integration tests have in common: it starts servers, connects
// clients through networks that a test can break, and waits for conditions.
package harness

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	_ "github.com/go-leaderelection/leaderelection/integrationtest/docker" // the preferred backend
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// startLimit is the time in which servers must start. The first start on a machine may have to
// build an image.
const startLimit = 8 * time.Minute

// Start starts the servers of a program.
func Start(cfg ensemble.Config) (*ensemble.Ensemble, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return ensemble.Start(ctx, cfg)
}

// StartServers starts the servers of a test. They are stopped when the test ends.
func StartServers(t testing.TB, cfg ensemble.Config) *ensemble.Ensemble {
	t.Helper()
	start := time.Now()
	e, err := Start(cfg)
	require.NoError(t, err)
	t.Logf("%d servers are ready after %v", e.Servers(), time.Since(start).Round(time.Millisecond))
	t.Cleanup(func() {
		LogServers(t, e)
		require.NoError(t, e.Close())
	})
	return e
}

// LogServers logs the last lines of the servers' logs if the test has failed.
func LogServers(t testing.TB, e *ensemble.Ensemble) {
	t.Helper()
	if t.Failed() {
		for i := range e.Servers() {
			t.Logf("server %d:\n%s", i, e.Log(i))
		}
	}
}

// WaitReady waits until all servers that run, and are neither paused nor cut off, serve clients.
func WaitReady(t testing.TB, e *ensemble.Ensemble) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), WaitLimit)
	defer cancel()
	require.NoError(t, e.Ready(ctx))
}

// RunTests starts servers, calls setup, and runs the tests of a package. It fails if a goroutine is
// left running. cleanup may be nil.
func RunTests(m *testing.M, cfg ensemble.Config, setup func(*ensemble.Ensemble) (cleanup func() error, err error)) (code int) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	defer func() {
		if code == 0 {
			fail(goleak.Find())
		}
	}()
	e, err := Start(cfg)
	if err != nil {
		fail(err)
		return code
	}
	defer func() { fail(e.Close()) }()
	cleanup, err := setup(e)
	if cleanup != nil {
		defer func() { fail(cleanup()) }()
	}
	if err != nil {
		fail(err)
		return code
	}
	return m.Run()
}
