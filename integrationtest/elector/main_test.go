//go:build linux

// Package elector holds the tests of the command elector that need real ZooKeeper
// servers, and its figures: the built binary, a real ensemble, and programs that tell by a
// lock file that they run. What the command does otherwise is tested in cmd/elector.
package elector

import (
	"context"
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

	_ "github.com/go-leaderelection/leaderelection/integrationtest/docker" // used if an engine answers
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

const (
	// sessionTimeout is the timeout of most sessions. It is so long that servers which do not
	// answer for some seconds, on a busy machine, end neither sessions nor leases.
	sessionTimeout = 20 * time.Second
	// shortTimeout is the timeout of sessions in tests that let a session or a lease expire.
	shortTimeout = 4 * time.Second
	// patience is how long a test waits for what must come.
	patience = time.Minute
	tick     = 300 * time.Millisecond
)

var (
	// servers are three, and every test leaves them running.
	servers *ensemble.Ensemble
	// folder has what is built.
	folder string
)

func TestMain(m *testing.M) {
	if os.Getenv(lockFileVariable) != "" {
		runProgram()
	}
	flag.Parse()
	os.Exit(runTests(m))
}

func runTests(m *testing.M) (code int) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	defer func() {
		if code == 0 {
			fail(goleak.Find())
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var err error
	if err = watchSources(); err != nil {
		fail(err)
		return code
	}
	if folder, err = os.MkdirTemp("", "elector"); err == nil {
		defer os.RemoveAll(folder)
		servers, err = ensemble.Start(ctx, ensemble.Config{
			Servers: 3, TickTime: tick,
			Properties: map[string]string{"maxSessionTimeout": fmt.Sprint(sessionTimeout.Milliseconds())},
		})
	}
	if err != nil {
		fail(err)
		return code
	}
	defer func() { fail(servers.Close()) }()
	return m.Run()
}

// watchSources has go test see that the binary is made of these files, and not take an
// older result for one of theirs.
func watchSources() error {
	return filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go") {
			_, err = os.Stat(path)
		}
		return err
	})
}

// build builds the command, once for each set of flags.
func build(name string, flags ...string) func(testing.TB) string {
	once := sync.OnceValues(func() (string, error) {
		file := filepath.Join(folder, name)
		cmd := exec.Command("go", append(append([]string{"build", "-o", file}, flags...), "../../cmd/elector")...)
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
	// checked has the race detector; the client library's own races are not for it to
	// find (see the Makefile).
	checked = build("checked", "-race", "-gcflags=github.com/go-zookeeper/zk=-race=false")
	// plain is what users have, for figures.
	plain = build("plain")
)
