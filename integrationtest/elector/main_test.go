//go:build linux

package elector

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	_ "github.com/go-leaderelection/leaderelection/integrationtest/docker" // registers Docker, which is the preferred backend
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

const (
	// sessionTimeout is the timeout of most sessions. It is so long that sessions and leases do not
	// expire if the servers of a busy machine do not answer for some seconds.
	sessionTimeout = 20 * time.Second
	// shortTimeout is the session timeout in tests that wait for the expiry of a session or a lease. It is so long
	// that leases do not expire earlier than the test intends.
	shortTimeout = 8 * time.Second
	// tick is the tick time of the servers.
	tick = 300 * time.Millisecond
)

var (
	// servers is an ensemble of three servers. A test that stops servers must start them again.
	servers *ensemble.Ensemble
	// buildDir is the directory of the binaries that the tests build.
	buildDir string
)

func TestMain(m *testing.M) {
	if os.Getenv(lockFileVariable) != "" {
		runProgram()
	}
	flag.Parse()
	cfg := ensemble.Config{
		Servers: 3, TickTime: tick,
		Properties: map[string]string{"maxSessionTimeout": fmt.Sprint(sessionTimeout.Milliseconds())},
	}
	goleak.VerifyTestMain(ensemble.Tests(m, cfg, func(e *ensemble.Ensemble) (cleanup func() error, err error) {
		servers = e
		if err := statSources(); err != nil {
			return nil, err
		}
		buildDir, err = os.MkdirTemp("", "elector")
		return func() error { return os.RemoveAll(buildDir) }, err
	}))
}

// statSources reads the status of all source files. go test then notices if one of them has changed, and does not
// reuse a cached result.
func statSources() error {
	return filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go") {
			_, err = os.Stat(path)
		}
		return err
	})
}

// buildOnce returns a function that builds the command in its first call, and returns the path of the binary.
func buildOnce(name, command string, flags ...string) func(testing.TB) string {
	once := sync.OnceValues(func() (string, error) {
		file := filepath.Join(buildDir, name)
		cmd := exec.Command("go", append(append([]string{"build", "-o", file}, flags...), "../../cmd/"+command)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
		return file, nil
	})
	return func(t testing.TB) string {
		t.Helper()
		file, err := once()
		require.NoError(t, err)
		return file
	}
}

var (
	// buildWithRace builds the command elector with the race detector, except for the client library, which contains
	// a data race that the Makefile describes.
	buildWithRace = buildOnce("race", "elector", "-race", "-gcflags=github.com/go-zookeeper/zk=-race=false")
	// buildPlain builds the command elector without the race detector, as users do, for benchmarks.
	buildPlain = buildOnce("plain", "elector")
)
