package benchmark

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReadProcessorUse_ReadsProcessAndMachine checks that ReadProcessorUse returns the processor time of this process
// and of the whole machine.
func TestReadProcessorUse_ReadsProcessAndMachine(t *testing.T) {
	before, err := ReadProcessorUse()
	require.NoError(t, err)
	after := before
	for own := time.Duration(0); own < 100*time.Millisecond; own = after.descendants(os.Getpid()) - before.descendants(os.Getpid()) {
		after, err = ReadProcessorUse()
		require.NoError(t, err)
	}
	require.Greater(t, after.machine, before.machine)
	require.NotEmpty(t, after.processes[os.Getpid()].name)
}
