package cache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKind_Text checks that the text of a Kind does not change.
func TestKind_Text(t *testing.T) {
	names := []string{}
	for k := range Fresh + 2 {
		names = append(names, k.String())
	}
	require.Equal(t, "Kind(0) created changed deleted stale fresh Kind(6)", fmt.Sprint(names)[1:len(fmt.Sprint(names))-1])
	require.True(t, slices.IsSorted([]Kind{Created, Changed, Deleted, Stale, Fresh}))
}
