package testenv_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// TestMakeDir_RemovesDirsOfEndedProcesses checks that MakeDir removes the directory of a process that has
// ended, and keeps the directory of a process that runs.
func TestMakeDir_RemovesDirsOfEndedProcesses(t *testing.T) {
	disk := t.TempDir()
	t.Setenv("TMPDIR", disk)
	require.True(t, testenv.OnDisk())
	require.Equal(t, disk, testenv.DirParent())

	child := exec.Command("true")
	require.NoError(t, child.Run())
	stale := filepath.Join(disk, "server-"+strconv.Itoa(child.Process.Pid)+"-1")
	require.NoError(t, os.MkdirAll(filepath.Join(stale, "data"), 0o700))
	unrelated := filepath.Join(disk, "server-x")
	require.NoError(t, os.Mkdir(unrelated, 0o700))
	first, err := testenv.MakeDir("server")
	require.NoError(t, err)
	second, err := testenv.MakeDir("server")
	require.NoError(t, err)
	require.NoDirExists(t, stale)
	for _, dir := range []string{first, second, unrelated} {
		require.DirExists(t, dir)
	}
}
