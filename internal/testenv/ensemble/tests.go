package ensemble

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// testStartLimit is how long the start of servers may take. The first start on a machine may have to build an
// image.
const testStartLimit = 8 * time.Minute

// StartForTests starts servers for tests, within testStartLimit.
func StartForTests(cfg Config) (*Ensemble, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testStartLimit)
	defer cancel()
	return Start(ctx, cfg)
}

// StartServers starts servers that run until the test ends.
func StartServers(t testing.TB, cfg Config) *Ensemble {
	t.Helper()
	start := time.Now()
	e, err := StartForTests(cfg)
	require.NoError(t, err)
	t.Logf("%d servers are ready after %v", e.Servers(), time.Since(start).Round(time.Millisecond))
	t.Cleanup(func() {
		LogServers(t, e)
		require.NoError(t, e.Close())
	})
	return e
}

// LogServers logs the last lines of the servers' logs if the test has failed.
func LogServers(t testing.TB, e *Ensemble) {
	t.Helper()
	if t.Failed() {
		for i := range e.Servers() {
			t.Logf("server %d:\n%s", i, e.Log(i))
		}
	}
}

// WaitReady waits until all servers that run, and are neither paused nor cut off, serve clients.
func WaitReady(t testing.TB, e *Ensemble) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.WaitLimit)
	defer cancel()
	require.NoError(t, e.Ready(ctx))
}

// Tests returns a wrapper of m. The method Run of the wrapper starts servers, calls setup, runs the tests, calls
// cleanup and closes the servers. cleanup may be nil.
func Tests(m *testing.M, cfg Config, setup func(*Ensemble) (cleanup func() error, err error)) interface{ Run() int } {
	return runnerFunc(func() int { return runTests(m, cfg, setup) })
}

type runnerFunc func() int

func (f runnerFunc) Run() int { return f() }

func runTests(m *testing.M, cfg Config, setup func(*Ensemble) (cleanup func() error, err error)) (code int) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	e, err := StartForTests(cfg)
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
