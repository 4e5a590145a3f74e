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

// A test that waits forever fails after the limit of fake time, and the output shows
// where it waits.
func TestFakeTimeLimit(t *testing.T) {
	if os.Getenv("ZKTEST_WAIT") != "" {
		synctest.Test(t, func(t *testing.T) {
			_, _, err := zktest.Start(t, zktest.WithFakeTimeLimit(time.Hour)).Connect(time.Second)
			require.NoError(t, err)
			waitForNothing()
		})
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFakeTimeLimit$")
	cmd.Env = append(os.Environ(), "ZKTEST_WAIT=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	message, stack, _ := strings.Cut(string(out), "its goroutines are:")
	require.Contains(t, message, "still running after 1h0m0s of fake time")
	require.Contains(t, stack, "waitForNothing(")
	require.Less(t, strings.Index(stack, "waitForNothing("), strings.Index(stack, "zk.(*Conn)"))
}

func waitForNothing() { <-make(chan int) }

// A test that needs more fake time sets another limit.
func TestWithoutFakeTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zktest.Start(t, zktest.WithFakeTimeLimit(0))
		zktest.Start(t, zktest.WithFakeTimeLimit(49*time.Hour))
		time.Sleep(48 * time.Hour)
	})
}
