package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFirstTerm_NeitherDecreasesNorJumps checks that FirstTerm returns no smaller term than the known one,
// and that a wrong wall clock does not use up the terms.
func TestFirstTerm_NeitherDecreasesNorJumps(t *testing.T) {
	require.Equal(t, uint64(MaxTerm/2), FirstTerm(1, 1<<63), "a wall clock in a distant future")
	require.EqualValues(t, 12, FirstTerm(1, 12))
	require.Equal(t, uint64(MaxTerm), FirstTerm(MaxTerm, 12))
}

// TestGeneration_IsPartOfEpoch checks that Generation returns the generation with which Epoch has
// created an epoch.
func TestGeneration_IsPartOfEpoch(t *testing.T) {
	require.EqualValues(t, 12, Generation(Epoch(12, "r")))
	require.Zero(t, Generation("x"))
}
