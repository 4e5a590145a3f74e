//go:build unix

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestParseRanges_ContainIndexes checks that parsed ranges contain exactly the indexes that they list, and that
// parseRanges rejects an invalid range.
func TestParseRanges_ContainIndexes(t *testing.T) {
	r, err := parseRanges("1-3,20,30-")
	require.NoError(t, err)
	for index, want := range map[uint64]bool{1: true, 3: true, 4: false, 19: false, 20: true, 21: false, 29: false, 30: true, 1 << 60: true} {
		require.Equal(t, want, r.contains(index), index)
	}
	r, err = parseRanges("")
	require.NoError(t, err)
	require.True(t, r.contains(7))
	for _, text := range []string{"0", "3-1", "a", "1,", "-3", "1-2-3", "1 -2"} {
		_, err := parseRanges(text)
		require.Equal(t, cmdline.Usage, exitCode(err), "%q", text)
	}
}
