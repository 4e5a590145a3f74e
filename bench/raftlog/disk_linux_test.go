package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheckDisk_RejectsDirectoryInMemory checks that the benchmark rejects a directory on tmpfs, and a
// directory that does not exist.
func TestCheckDisk_RejectsDirectoryInMemory(t *testing.T) {
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		t.Skip("there is no " + memory)
	}
	require.ErrorContains(t, checkDisk(memory), "-dir")
	require.ErrorIs(t, checkDisk(memory+"/not there"), os.ErrNotExist)
}
