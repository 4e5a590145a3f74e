package disk

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheckPrivate_RejectsFilesOthersCanWrite checks that checkPrivate accepts only files that no user
// but the user of the process and root could have written.
func TestCheckPrivate_RejectsFilesOthersCanWrite(t *testing.T) {
	for _, c := range []struct {
		mode        fs.FileMode
		owner, self int
		known       bool
		want        string // a part of the error, or "" if the file is accepted
	}{
		{0o600, 5, 5, true, ""},
		{0o644, 5, 5, true, ""},
		{0o600, 0, 5, true, ""},
		{0o600, 6, 5, true, "belongs to user 6"},
		{0o600, 5, 0, true, "belongs to user 5"},
		{0o620, 5, 5, true, "mode 0620"},
		{0o602, 0, 5, true, "mode 0602"},
		{0o666, 0, 0, false, ""},
		{fs.ModeNamedPipe | 0o600, 5, 5, true, "not a regular file"},
		{fs.ModeDir | 0o600, 5, 5, false, "not a regular file"},
	} {
		err := checkPrivate(c.mode, c.owner, c.self, c.known)
		if c.want == "" {
			require.NoError(t, err, "%+v", c)
		} else {
			require.ErrorContains(t, err, c.want, "%+v", c)
		}
	}
	require.ErrorContains(t, withRemedy(&fs.PathError{Op: "open", Path: "file", Err: fs.ErrPermission}, "file"), "create it as that user")
	path := filepath.Join(t.TempDir(), "file")
	_, err := OpenPrivate(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("content"), 0o600))
	f, err := OpenPrivate(path)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 7, size)
	require.NoError(t, f.Close())
	if runtime.GOOS == "windows" {
		return
	}
	require.NoError(t, os.Chmod(path, 0o606))
	_, err = OpenPrivate(path)
	require.ErrorContains(t, err, path+": the file has mode 0606")
}
