package interop

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/recipes/barrier"
)

// TestBarrier_BlocksAllLibraries checks that a barrier that one library sets blocks the clients of all three
// libraries, until another library removes the barrier. A barrier is a znode, so this library, Curator and kazoo can
// use it together.
func TestBarrier_BlocksAllLibraries(t *testing.T) {
	curator.requirePeer(t)
	kazoo.requirePeer(t)
	conn := connect(t)
	changeBarrier := func(t *testing.T, library, what, path string) {
		t.Helper()
		switch library {
		case "go":
			b, err := barrier.New(conn, path)
			require.NoError(t, err)
			if what == "set" {
				require.NoError(t, b.Set(testenv.ContextOf(t)))
			} else {
				require.NoError(t, b.Remove(testenv.ContextOf(t)))
			}
		case "curator":
			curator.runCommand(t, "barrier", what, path)
		case "kazoo":
			kazoo.runCommand(t, "barrier", what, path)
		}
	}
	all := []string{"go", "curator", "kazoo"}
	for i, sets := range all {
		removes := all[(i+1)%len(all)]
		t.Run(sets+" sets and "+removes+" removes", func(t *testing.T) {
			path := testenv.NewPath(t)
			changeBarrier(t, sets, "set", path)
			changeBarrier(t, sets, "set", path) // setting a barrier that is set already is not an error
			passed := make(chan error, 1)
			b, err := barrier.New(conn, path)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(context.Background(), testenv.WaitLimit)
			defer cancel()
			go func() { passed <- b.Wait(ctx) }()
			calls := []*call{curator.sendCommand(t, "barrier", 0, "wait", path), kazoo.sendCommand(t, "barrier", 0, "wait", path)}
			require.Never(t, func() bool { return len(passed) > 0 || len(calls[0].answer) > 0 || len(calls[1].answer) > 0 }, quietTime, quietTime/5)
			changeBarrier(t, removes, "remove", path)
			require.NoError(t, <-passed)
			for _, c := range calls {
				c.wait(t)
			}
		})
	}
}
