package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemoryIsRefused(t *testing.T) {
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		t.Skip("no " + memory + " here")
	}
	require.ErrorContains(t, onDisk(memory), "-dir")
	require.ErrorIs(t, onDisk(memory+"/not there"), os.ErrNotExist)
}
