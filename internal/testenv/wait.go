package testenv

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// WaitLimit is how long a test waits for an event that must occur.
const WaitLimit = 2 * time.Minute

// Eventually waits until the condition is true. After WaitLimit, it fails the test with the message.
func Eventually(t testing.TB, condition func() bool, message string) {
	t.Helper()
	require.Eventually(t, condition, WaitLimit, 5*time.Millisecond, message)
}

// Receive waits until it receives an element from the channel, or until the channel is closed. what is the name of
// the event in the message of a failure.
func Receive[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(WaitLimit):
		require.FailNow(t, "timeout", "waiting for %s", what)
		panic("unreachable")
	}
}

// InBackground calls f in a goroutine, and returns a channel that receives the result. The test waits for the
// goroutine before it ends.
func InBackground[T any](t testing.TB, f func() T) <-chan T {
	c := make(chan T, 1)
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		c <- f()
	}()
	return c
}

// ContextOf returns a context that ends after WaitLimit or when the test ends, whichever is earlier.
func ContextOf(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), WaitLimit)
	t.Cleanup(cancel)
	return ctx
}

// NewPath returns a path that no other test uses.
func NewPath(t testing.TB) string {
	return "/" + strings.ReplaceAll(t.Name(), "/", "-") + "-" + rand.Text()[:8]
}
