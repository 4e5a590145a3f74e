package integrationtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/integrationtest/internal/harness"
)

// The environment variables that make the test binary run runCandidateProcess.
const (
	processAddr = "LEADERELECTION_TEST_ADDR"
	processNode = "LEADERELECTION_TEST_NODE"
	processMode = "LEADERELECTION_TEST_MODE" // "stay", or "resign" to resign as leader
)

// candidateProcess is a process with a candidate, which prints its roles.
type candidateProcess struct {
	cmd   *exec.Cmd
	lines chan string // closed after the last line of the output
}

// startProcess starts a candidate process on the shared server.
func startProcess(t *testing.T, node, mode string) *candidateProcess {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), processAddr+"="+shared.Addr(0), processNode+"="+node, processMode+"="+mode)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &candidateProcess{cmd: cmd, lines: make(chan string, 100)}
	go p.readOutput(out)
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has usually ended
		for range p.lines {
		}
		_ = cmd.Wait()
	})
	return p
}

func (p *candidateProcess) readOutput(out io.Reader) {
	defer close(p.lines)
	for s := bufio.NewScanner(out); s.Scan(); {
		p.lines <- s.Text()
	}
}

// readLine waits for the next line of output.
func (p *candidateProcess) readLine(t *testing.T) string {
	t.Helper()
	select {
	case line, ok := <-p.lines:
		require.True(t, ok, "the process has ended")
		return line
	case <-time.After(harness.WaitLimit):
		require.Fail(t, "the process prints nothing")
		return ""
	}
}

// waitEnd waits until the process has ended, and returns the result.
func (p *candidateProcess) waitEnd(t *testing.T) error {
	t.Helper()
	limit := time.After(harness.WaitLimit)
	for {
		select {
		case _, ok := <-p.lines:
			if !ok {
				return p.cmd.Wait()
			}
		case <-limit:
			require.Fail(t, "the process does not end")
		}
	}
}

// runCandidateProcess runs a candidate, and returns the exit status.
func runCandidateProcess() int {
	conn, _, err := zk.Connect([]string{os.Getenv(processAddr)}, shortTimeout, zk.WithLogInfo(false))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer conn.Close()
	e, err := leaderelection.NewElection(conn, os.Getenv(processNode), leaderelection.WithSessionTimeout(shortTimeout))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go e.ElectLeader()
	for s := range e.Status() {
		fmt.Println(s.Role)
		if s.Role == leaderelection.Leader && os.Getenv(processMode) == "resign" {
			if err := e.Resign(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			return 0
		}
	}
	return 1
}

// TestElection_ProcessKilled fails if a follower does not become leader after the process of the leader
// was killed.
func TestElection_ProcessKilled(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	node := createElectionNode(t, conn)
	leader := startProcess(t, node, "stay")
	require.Equal(t, "leader", leader.readLine(t))
	follower := startProcess(t, node, "resign")
	require.Equal(t, "follower", follower.readLine(t))

	require.NoError(t, leader.cmd.Process.Kill())
	require.Equal(t, "leader", follower.readLine(t))
	require.NoError(t, follower.waitEnd(t), "exit status of the follower")
	require.Empty(t, listChildren(t, conn, node))
}
