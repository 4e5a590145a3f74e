package cache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKind_StringDoesNotChange checks that String returns the same text for each Kind as in earlier versions,
// because programs log the text.
func TestKind_StringDoesNotChange(t *testing.T) {
	names := []string{}
	for k := range Fresh + 2 {
		names = append(names, k.String())
	}
	require.Equal(t, "Kind(0) created changed deleted stale fresh Kind(6)", fmt.Sprint(names)[1:len(fmt.Sprint(names))-1])
	require.True(t, slices.IsSorted([]Kind{Created, Changed, Deleted, Stale, Fresh}))
}
