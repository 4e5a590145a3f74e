package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFloorIsOverWhenTwoFilesHaveTheRound(t *testing.T) {
	require.Equal(t, 1, countFrom([nodes]int{3, 2, 1}, 3))
	require.Equal(t, 2, countFrom([nodes]int{3, 2, 4}, 3))

	var files [nodes]*floorFile
	for i := range files {
		f, err := newFloorFile(filepath.Join(t.TempDir(), "floor"), updateSize)
		require.NoError(t, err)
		defer f.file.Close()
		files[i] = f
	}
	rounds := 0
	require.NoError(t, lockstep(files, func(from, to time.Time) bool {
		require.False(t, to.Before(from))
		rounds++
		return rounds < 20
	}))
	require.Equal(t, 20, rounds)
	for _, f := range files {
		require.Equal(t, 20, f.round, "whoever lagged has caught up")
		require.EqualValues(t, 20*updateSize, f.at)
	}

	require.NoError(t, files[1].file.Close())
	err := lockstep(files, func(from, to time.Time) bool { return true })
	require.Error(t, err, "a disk that fails ends it")
}

func TestFloorFileIsWrittenAgainFromItsStart(t *testing.T) {
	name := filepath.Join(t.TempDir(), "floor")
	f, err := newFloorFile(name, floorSize/2+1)
	require.NoError(t, err)
	defer f.file.Close()
	require.NoError(t, f.writeUpTo(2))
	require.EqualValues(t, 2, f.at)
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.EqualValues(t, floorSize, info.Size())
}
