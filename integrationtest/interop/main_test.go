// Package interop tests Go programs together with programs of other libraries on a real ZooKeeper
// server: Apache Curator in Java and kazoo in Python, as packaged by Debian. Go and Curator share
// one layout of znodes, Go and kazoo another. All three can use recipes that consist only of data.
//
// The tests do not rely on any of the libraries to detect violations of mutual exclusion: each
// participant, in any language, reports to a monitor in the test process when it acquires and
// releases a resource (monitor_test.go).
package interop

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	_ "github.com/go-leaderelection/leaderelection/integrationtest/docker" // registers Docker, which is the preferred backend
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

const (
	// sessionTimeout is the timeout of all sessions, including those of the peers. It is so long that no session
	// expires while a Java program starts, which uses a whole CPU.
	sessionTimeout = 10 * time.Second
	// quietTime is how long a test waits for an event that must not occur.
	quietTime = 50 * time.Millisecond
)

var (
	server           *ensemble.Ensemble
	exclusionMonitor *monitor
)

func TestMain(m *testing.M) {
	if os.Getenv(chaosVariable) != "" {
		runParticipant()
	}
	flag.Parse()
	goleak.VerifyTestMain(ensemble.Tests(m, ensemble.Config{TickTime: sessionTimeout / 20}, func(e *ensemble.Ensemble) (cleanup func() error, err error) {
		server = e
		if exclusionMonitor, err = newMonitor(); err != nil {
			return nil, err
		}
		// Start the programs of the other libraries now, so that they become ready while the first tests run.
		for _, p := range []*peer{curator, kazoo} {
			p.start(server.Addr(0), exclusionMonitor.addr())
		}
		return func() error { return errors.Join(curator.stop(), kazoo.stop(), exclusionMonitor.close()) }, nil
	}))
}

// connect connects a client that is closed when the test ends.
func connect(t *testing.T) *zk.Conn {
	t.Helper()
	return zkproxy.ConnectDirectly(t, sessionTimeout, server.Addr(0)).Conn
}

// waitChildren waits until a znode has n children. A znode that does not exist counts as one without children.
func waitChildren(t *testing.T, conn *zk.Conn, n int, path string) {
	t.Helper()
	testenv.Eventually(t, func() bool {
		children, _, err := conn.Children(path)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Error(err)
			return true
		}
		return len(children) == n
	}, fmt.Sprintf("%s does not have %d children", path, n))
}
