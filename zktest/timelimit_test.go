package zktest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestFakeTimeLimit_StopsTest checks that a test that waits forever ends at the limit of fake time, and that the
// output shows the waiting goroutines.
func TestFakeTimeLimit_StopsTest(t *testing.T) {
	if os.Getenv("ZKTEST_WAIT") != "" {
		synctest.Test(t, func(t *testing.T) {
			_, _, err := zktest.Start(t, zktest.WithFakeTimeLimit(time.Hour)).Connect(time.Second)
			require.NoError(t, err)
			waitForever()
		})
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFakeTimeLimit_StopsTest$")
	cmd.Env = append(os.Environ(), "ZKTEST_WAIT=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	message, stack, _ := strings.Cut(string(out), "its goroutines are:")
	require.Contains(t, message, "still running after 1h0m0s of fake time")
	require.Contains(t, stack, "waitForever(")
	require.Less(t, strings.Index(stack, "waitForever("), strings.Index(stack, "zk.(*Conn)"))
}

func waitForever() { <-make(chan int) }

// TestFakeTimeLimit_CanBeChanged checks that a test is not stopped before a longer limit, or if the limit is
// disabled.
func TestFakeTimeLimit_CanBeChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zktest.Start(t, zktest.WithFakeTimeLimit(0))
		zktest.Start(t, zktest.WithFakeTimeLimit(49*time.Hour))
		time.Sleep(48 * time.Hour)
	})
}
