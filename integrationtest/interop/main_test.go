// Package interop holds tests in which programs of other libraries take part:
// Apache Curator's in Java and kazoo's in Python, both as Debian has them, on one real
// ZooKeeper. Go and Curator share a znode layout, Go and kazoo another; all three meet
// only where there is nothing but data.
//
// Whether holders exclude each other is not left to any of the libraries: each of them,
// in whatever language, tells an oracle in the test process when it enters and when it
// leaves (oracle_test.go).
package interop

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	_ "github.com/go-leaderelection/leaderelection/integrationtest/docker" // used if an engine answers
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

const (
	// sessionTimeout is that of all connections; the peers ask for the same. It is long,
	// since these tests are not of its end, and a Java that starts takes all of a CPU.
	sessionTimeout = 10 * time.Second
	// patience is how long a test waits for what must come.
	patience = 30 * time.Second
	// calm is how long a test looks for what must not come.
	calm = 50 * time.Millisecond
)

var (
	server *ensemble.Ensemble
	judge  *oracle
)

func TestMain(m *testing.M) {
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
	if server, err = ensemble.Start(ctx, ensemble.Config{TickTime: sessionTimeout / 20}); err == nil {
		defer func() { fail(server.Close()) }()
		judge, err = newOracle()
	}
	if err != nil {
		fail(err)
		return code
	}
	defer func() { fail(judge.close()) }()
	// They start while the first tests run.
	for _, p := range []*peer{curator, kazoo} {
		p.start(server.Addr(0), judge.addr())
	}
	defer func() { fail(errors.Join(curator.stop(), kazoo.stop())) }()
	return m.Run()
}

// connect opens a session that ends with the test, which waits for the last goroutine
// of the connection.
func connect(t *testing.T) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(server.Addrs(), sessionTimeout,
		zk.WithLogger(log.New(io.Discard, "", 0)), zk.WithMaxBufferSize(1<<20))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		for range events { // closed when the connection's goroutine ends
		}
	})
	eventually(t, func() bool { return conn.State() == zk.StateHasSession }, "no session")
	return conn
}

// eventually waits for a condition that nothing announces.
func eventually(t *testing.T, condition func() bool, what string, args ...any) {
	t.Helper()
	require.Eventually(t, condition, patience, 5*time.Millisecond, fmt.Sprintf(what, args...))
}

// waiting is for what must come, and ends at the latest with the test.
func waiting(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newPath is an unused path.
func newPath(t *testing.T) string {
	return "/" + strings.ReplaceAll(t.Name(), "/", "-") + "-" + rand.Text()[:8]
}

// inLine waits until a znode has n children, none if it does not exist.
func inLine(t *testing.T, conn *zk.Conn, n int, path string) {
	t.Helper()
	eventually(t, func() bool {
		children, _, err := conn.Children(path)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Error(err)
			return true
		}
		return len(children) == n
	}, "%s has not %d children", path, n)
}
