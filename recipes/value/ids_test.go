package value

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestIDs_AreUnique checks that concurrent clients receive different numbers, with one write for each block of
// numbers.
func TestIDs_AreUnique(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		var mu sync.Mutex
		seen := map[int64]bool{}
		var clients sync.WaitGroup
		for range 3 {
			ids, err := NewIDs(newCounter(h), 10)
			require.NoError(h, err)
			for range 2 {
				clients.Go(func() {
					for range 25 {
						id, err := ids.Next(h.Context())
						require.NoError(h, err)
						mu.Lock()
						require.False(h, seen[id], "%d twice", id)
						seen[id] = true
						mu.Unlock()
					}
				})
			}
		}
		clients.Wait()
		require.True(h, seen[1])
		writes := h.Server.Log().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpMulti && e.Code == 0 })
		require.Len(h, writes, 15+2, "15 blocks, and the records of the two clients that have not created the counter")
		_, err := NewIDs(newCounter(h), 0)
		require.ErrorIs(h, err, recipes.ErrInvalid)
	})
}

// TestIDs_ReturnErrOverflowAfterLargestNumber checks that Next returns ErrOverflow after it has returned the
// largest number.
func TestIDs_ReturnErrOverflowAfterLargestNumber(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		c := newCounter(h)
		require.NoError(h, c.Set(h.Context(), math.MaxInt64-2))
		ids, err := NewIDs(c, 2)
		require.NoError(h, err)
		for _, want := range []int64{math.MaxInt64 - 1, math.MaxInt64} {
			id, err := ids.Next(h.Context())
			require.NoError(h, err)
			require.Equal(h, want, id)
		}
		for range 2 {
			_, err = ids.Next(h.Context())
			require.ErrorIs(h, err, ErrOverflow)
		}
	})
}
