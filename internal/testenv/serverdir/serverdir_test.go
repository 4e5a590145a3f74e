package serverdir_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/serverdir"
)

func TestMake(t *testing.T) {
	disk := t.TempDir()
	t.Setenv("TMPDIR", disk)
	require.True(t, serverdir.OnDisk())
	require.Equal(t, disk, serverdir.Parent())

	// A process that is gone has left a folder, we have another, and one is somebody else's.
	child := exec.Command("true")
	require.NoError(t, child.Run())
	stale := filepath.Join(disk, "server-"+strconv.Itoa(child.Process.Pid)+"-1")
	require.NoError(t, os.MkdirAll(filepath.Join(stale, "data"), 0o700))
	other := filepath.Join(disk, "server-x")
	require.NoError(t, os.Mkdir(other, 0o700))
	first, err := serverdir.Make("server")
	require.NoError(t, err)
	second, err := serverdir.Make("server")
	require.NoError(t, err)
	require.NoDirExists(t, stale)
	for _, dir := range []string{first, second, other} {
		require.DirExists(t, dir)
	}
}
