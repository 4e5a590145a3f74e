//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/offline"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestExitCode_MatchesErrorAndHelp checks that exitCode returns the documented exit code for each error, and
// that the help texts of the commands contain all exit codes.
func TestExitCode_MatchesErrorAndHelp(t *testing.T) {
	for want, errs := range map[int][]error{
		0:                 {nil},
		cmdline.Usage:     {newUsageError("x"), fmt.Errorf("x: %w", fs.ErrNotExist)},
		cmdline.Exists:    {fmt.Errorf("%w", cmdline.Errorf(cmdline.Exists, "x"))},
		cmdline.Failed:    {errors.New("x"), api.ErrRefused, api.ErrStale},
		cmdline.Unknown:   {fmt.Errorf("%w: %w", api.ErrUnknownOutcome, io.EOF)},
		cmdline.Permanent: {api.ErrFault, offline.ErrCorrupt, offline.ErrSnapshot, offline.ErrMalformed, offline.ErrDirectory},
	} {
		for _, err := range errs {
			require.Equal(t, want, exitCode(err), "%v", err)
		}
	}
	commands := newRoot().Commands()
	for code := range cmdline.Nothing + 1 {
		line := fmt.Sprintf("\n  %-2d ", code)
		documenting := 0
		for _, cmd := range commands {
			if strings.Contains(cmd.Long, line) {
				documenting++
			}
		}
		switch code {
		case 0, cmdline.Failed, cmdline.Usage:
			require.Equal(t, len(commands), documenting, "code %d", code)
		case cmdline.Permanent, cmdline.NoLeader, cmdline.Identity, cmdline.Missing, cmdline.Exists, cmdline.Unknown, cmdline.Nothing:
			require.NotZero(t, documenting, "code %d", code)
			require.Less(t, documenting, len(commands), "code %d", code)
		default:
			require.Zero(t, documenting, "code %d", code)
		}
		require.Equal(t, documenting > 0, strings.Contains(exitHelp, line), "code %d", code)
	}
	require.Equal(t, exitHelp, exitCodes(cmdline.Permanent, cmdline.NoLeader, cmdline.Identity, cmdline.Missing, cmdline.Exists, cmdline.Unknown, cmdline.Nothing))
}
