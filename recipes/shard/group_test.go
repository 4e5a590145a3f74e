package shard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRun_ShardsAreDivided fails if a shard is not owned by the planned member, or if more shards than necessary move
// when members join, leave and crash.
func TestRun_ShardsAreDivided(t *testing.T) {
	runTest(t, func(w fixture) {
		r := w.recorder()
		w.setShards(20)
		a := r.start("a", 100*time.Millisecond)
		settle()
		r.requireEven(20, "a")
		require.Equal(w, 20, r.count)
		b := r.start("b", 100*time.Millisecond)
		settle()
		r.requireEven(20, "a", "b")
		require.Equal(w, 30, r.count)
		c := r.start("c", 100*time.Millisecond)
		settle()
		r.requireEven(20, "a", "b", "c")
		require.Equal(w, 36, r.count)
		a.leave(w) // it is the leader
		settle()
		r.requireEven(20, "b", "c")
		require.Equal(w, 43, r.count)
		b.leave(w)
		c.leave(w)
		require.Empty(w, r.current())
	})
}
