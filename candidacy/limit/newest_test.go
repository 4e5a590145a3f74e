package limit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSendNewest fails if SendNewest blocks, or if the receiver gets an older value.
func TestSendNewest(t *testing.T) {
	c := make(chan int, 1)
	for i := range 3 {
		SendNewest(c, i)
	}
	require.Equal(t, 2, <-c)
	require.Empty(t, c)
	SendNewest(c, 3)
	require.Equal(t, 3, <-c)
}

// TestChanges fails if Add reports an equal value as a change, or does not report a change.
func TestChanges(t *testing.T) {
	var c Changes[int]
	for _, step := range []struct {
		value   int
		changed bool
	}{{0, true}, {0, false}, {1, true}, {1, false}, {0, true}} {
		require.Equal(t, step.changed, c.Add(step.value), "%+v", step)
	}
}
