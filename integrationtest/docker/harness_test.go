package docker_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) != "" {
		runOwner()
	}
	goleak.VerifyTestMain(m)
}

// availableBackends returns the backends that this machine can run, with the preferred backend at the end. There must
// be at least one.
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

// forEachBackend runs a test with each available backend.
func forEachBackend(t *testing.T, test func(*testing.T, ensemble.Backend)) {
	t.Helper()
	for _, backend := range availableBackends(t) {
		t.Run(backend.String(), func(t *testing.T) {
			t.Parallel()
			test(t, backend)
		})
	}
}

func connect(t *testing.T, addrs ...string) *zkproxy.Client {
	t.Helper()
	return zkproxy.ConnectDirectly(t, 4*time.Second, addrs...)
}

// waitReady waits until server i serves clients.
func waitReady(t *testing.T, e *ensemble.Ensemble, i int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.WaitLimit)
	defer cancel()
	require.NoError(t, e.WaitReady(ctx, i))
}

// waitLeader waits until a server other than old is the leader, and returns that server.
func waitLeader(t *testing.T, e *ensemble.Ensemble, old int) (leader int) {
	t.Helper()
	testenv.Eventually(t, func() bool {
		var err error
		leader, err = e.Leader()
		return err == nil && leader != old
	}, "no new leader")
	return leader
}

// findFollower returns a server that is not the leader.
func findFollower(t *testing.T, e *ensemble.Ensemble) int {
	t.Helper()
	leader := waitLeader(t, e, -1)
	return (leader + 1) % e.Servers()
}
