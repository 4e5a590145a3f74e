package latest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChanges(t *testing.T) {
	var c Changes[int]
	for _, step := range []struct {
		value   int
		changed bool
	}{{0, true}, {0, false}, {1, true}, {1, false}, {0, true}} {
		require.Equal(t, step.changed, c.Add(step.value), "%+v", step)
	}
}
