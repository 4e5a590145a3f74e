package docker_test

import (
	"context"
	"io"
	"log"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	_ "github.com/go-leaderelection/leaderelection/integrationtest/docker"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanVariable) != "" {
		runOrphan()
	}
	goleak.VerifyTestMain(m)
}

// availableBackends gives the backends that this machine can have, the
// preferred one last. At least one must be there.
func availableBackends(t *testing.T) []ensemble.Backend {
	t.Helper()
	var backends []ensemble.Backend
	if _, err := os.Stat("/usr/share/java/zookeeper.jar"); err == nil {
		backends = append(backends, ensemble.Process)
	}
	if exec.Command("docker", "version").Run() == nil {
		backends = append(backends, ensemble.Docker)
	}
	require.NotEmpty(t, backends, "run integrationtest/install.sh")
	return backends
}

// eachBackend runs a test with every available backend.
func eachBackend(t *testing.T, test func(*testing.T, ensemble.Backend)) {
	t.Helper()
	for _, backend := range availableBackends(t) {
		t.Run(backend.String(), func(t *testing.T) {
			t.Parallel()
			test(t, backend)
		})
	}
}

// start starts an ensemble that ends with the test. The first one on a machine
// may have to build an image.
func start(t *testing.T, cfg ensemble.Config) *ensemble.Ensemble {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	begin := time.Now()
	e, err := ensemble.Start(ctx, cfg)
	require.NoError(t, err)
	t.Logf("%d servers ready after %v", e.Servers(), time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() {
		if t.Failed() {
			for i := range e.Servers() {
				t.Logf("server %d:\n%s", i, e.Log(i))
			}
		}
		require.NoError(t, e.Close())
	})
	return e
}

// connect opens a session on the given servers.
func connect(t *testing.T, addrs ...string) *zk.Conn {
	t.Helper()
	quiet := log.New(io.Discard, "", 0)
	conn, events, err := zk.Connect(addrs, 4*time.Second, zk.WithLogger(quiet))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		for range events { // closed when the last goroutine of conn ends
		}
	})
	require.Eventually(t, func() bool { return conn.State() == zk.StateHasSession },
		20*time.Second, 10*time.Millisecond)
	return conn
}

// waitReady gives server i its time to serve clients again.
func waitReady(t *testing.T, e *ensemble.Ensemble, i int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	require.NoError(t, e.WaitReady(ctx, i))
}

// waitLeader waits until a server other than old leads.
func waitLeader(t *testing.T, e *ensemble.Ensemble, old int) int {
	t.Helper()
	leader := -1
	require.Eventually(t, func() bool {
		var err error
		leader, err = e.Leader()
		return err == nil && leader != old
	}, 30*time.Second, 50*time.Millisecond, "no new leader")
	return leader
}

// follower gives a server that does not lead.
func follower(t *testing.T, e *ensemble.Ensemble) int {
	t.Helper()
	leader := waitLeader(t, e, -1)
	return (leader + 1) % e.Servers()
}
