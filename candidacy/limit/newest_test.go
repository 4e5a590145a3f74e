package limit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSendNewest_ReplacesUnreadValue checks that SendNewest does not block while nothing is received, and that
// the receiver gets only the value that was sent last.
func TestSendNewest_ReplacesUnreadValue(t *testing.T) {
	c := make(chan int, 1)
	for i := range 3 {
		SendNewest(c, i)
	}
	require.Equal(t, 2, <-c)
	require.Empty(t, c)
	SendNewest(c, 3)
	require.Equal(t, 3, <-c)
}

// TestChanges_AddReportsOnlyChangedValues checks that Add returns true for the first value, and for each value
// that differs from the previous one.
func TestChanges_AddReportsOnlyChangedValues(t *testing.T) {
	var c Changes[int]
	for _, step := range []struct {
		value   int
		changed bool
	}{{0, true}, {0, false}, {1, true}, {1, false}, {0, true}} {
		require.Equal(t, step.changed, c.Add(step.value), "%+v", step)
	}
}
