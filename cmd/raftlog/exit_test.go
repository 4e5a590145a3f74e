//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/offline"
)

// TestExitCode fails if the exit code for an error is wrong, or a help text lacks the exit codes.
func TestExitCode(t *testing.T) {
	for want, errs := range map[int][]error{
		0:           {nil},
		exitUsage:   {newUsageError("x"), fmt.Errorf("x: %w", fs.ErrNotExist)},
		exitExists:  {fmt.Errorf("%w", newError(exitExists, "x"))},
		exitFailed:  {errors.New("x"), api.ErrRefused, api.ErrStale},
		exitUnknown: {fmt.Errorf("%w: %w", api.ErrUnknownOutcome, io.EOF)},
		exitDamaged: {api.ErrFault, offline.ErrCorrupt, offline.ErrSnapshot, offline.ErrMalformed, offline.ErrDirectory},
	} {
		for _, err := range errs {
			require.Equal(t, want, exitCode(err), "%v", err)
		}
	}
	for _, code := range []int{
		0, exitFailed, exitUsage, exitDamaged, exitNoLeader, exitIdentity, exitMissing, exitExists, exitUnknown, exitNothing,
	} {
		require.Contains(t, exitHelp, fmt.Sprintf("\n  %-2d ", code))
	}
	for _, cmd := range newRoot().Commands() {
		require.Contains(t, cmd.Long, exitHelp, cmd.Name())
	}
}
