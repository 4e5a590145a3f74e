package docker_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// ownerVariable is an environment variable that makes the test binary call runOwner. The value is the name of the
// backend.
const ownerVariable = "ENSEMBLE_TEST_OWNER_BACKEND"

// runOwner starts a server, prints the address of the server, and waits until it is killed.
func runOwner() {
	backend := ensemble.Process
	if os.Getenv(ownerVariable) == ensemble.Docker.String() {
		backend = ensemble.Docker
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := ensemble.Start(ctx, ensemble.Config{Backend: backend})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(e.Addr(0))
	select {}
}

// isListening reports whether a server listens at an address.
func isListening(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// TestStart_LeavesNoServersAfterOwnerIsKilled checks that no servers remain after the process that has started them
// was killed. The test starts the test binary as that process.
func TestStart_LeavesNoServersAfterOwnerIsKilled(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend ensemble.Backend) {
		owner := exec.Command(os.Args[0])
		owner.Env = append(os.Environ(), ownerVariable+"="+backend.String())
		output, err := owner.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, owner.Start())
		addr, err := bufio.NewReader(output).ReadString('\n')
		require.NoError(t, owner.Process.Kill())
		require.Error(t, owner.Wait())
		require.NoError(t, err)
		addr = addr[:len(addr)-1]
		owned := fmt.Sprintf("/%d", owner.Process.Pid)

		switch backend {
		case ensemble.Process:
			// The kernel kills the server, which is a child process of the owner. The next Start removes the files of
			// the server.
			require.Eventually(t, func() bool { return !isListening(addr) }, 10*time.Second, 20*time.Millisecond)
			ensemble.StartServers(t, ensemble.Config{Backend: backend})
			left, err := os.ReadDir(testenv.DirParent())
			require.NoError(t, err)
			for _, entry := range left {
				assert.NotContains(t, entry.Name(), fmt.Sprintf("zk-ensemble-%d-", owner.Process.Pid))
			}
		case ensemble.Docker:
			// The next Start removes the container and the network of the killed owner.
			ensemble.StartServers(t, ensemble.Config{Backend: backend})
			require.False(t, isListening(addr))
			host, err := os.Hostname()
			require.NoError(t, err)
			filter := "--filter=label=leaderelection.ensemble.owner=" + host + owned
			for _, list := range [][]string{{"ps", "-aq", filter}, {"network", "ls", "-q", filter}} {
				out, err := exec.Command("docker", list...).CombinedOutput()
				require.NoError(t, err)
				assert.Empty(t, string(out))
			}
		}
	})
}
