//go:build unix

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestList_RejectsDirectoryOfEarlierFormat checks that the command list rejects a directory of an earlier
// format, whose records it cannot decode, and that the error names the format.
func TestList_RejectsDirectoryOfEarlierFormat(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "peer.json"), []byte(`{"format":2,"cluster":"c","peer":"a"}`), 0o600))
	var log strings.Builder
	require.Equal(t, cmdline.Permanent, execute([]string{"list", dir}, nil, io.Discard, &log))
	require.Contains(t, log.String(), "format 2 of a version before the first release is not supported")
}
