package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBaseline_RoundCompletesWithTwoFiles checks that a round is complete when two of the three files contain
// it, that no file skips a round, and that a write error is returned.
func TestBaseline_RoundCompletesWithTwoFiles(t *testing.T) {
	require.Equal(t, 1, countReached([nodes]int{3, 2, 1}, 3))
	require.Equal(t, 2, countReached([nodes]int{3, 2, 4}, 3))

	var files [nodes]*baselineFile
	for i := range files {
		f, err := newBaselineFile(filepath.Join(t.TempDir(), "baseline"), updateSize)
		require.NoError(t, err)
		defer f.file.Close()
		files[i] = f
	}
	rounds := 0
	require.NoError(t, writeInLockstep(files, func(from, to time.Time) bool {
		require.False(t, to.Before(from))
		rounds++
		return rounds < 20
	}))
	require.Equal(t, 20, rounds)
	for _, f := range files {
		require.Equal(t, 20, f.round, "files that lag behind must catch up")
		require.EqualValues(t, 20*updateSize, f.at)
	}

	require.NoError(t, files[1].file.Close())
	err := writeInLockstep(files, func(from, to time.Time) bool { return true })
	require.Error(t, err, "a write error must stop the baseline")
}

// TestBaselineFile_ContinuesAtStart checks that the file does not grow beyond its size.
func TestBaselineFile_ContinuesAtStart(t *testing.T) {
	name := filepath.Join(t.TempDir(), "baseline")
	f, err := newBaselineFile(name, baselineSize/2+1)
	require.NoError(t, err)
	defer f.file.Close()
	require.NoError(t, f.writeUpTo(2))
	require.EqualValues(t, 2, f.at)
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.EqualValues(t, baselineSize, info.Size())
}
