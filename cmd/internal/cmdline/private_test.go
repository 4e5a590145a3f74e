package cmdline

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadPrivate fails if a file that others can write is accepted, if there is no warning for a file that
// all users can read, or if there is one for other files.
func TestReadPrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the mode of a file does not describe who has access")
	}
	name := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(name, []byte("content"), 0o600))
	for _, test := range []struct {
		mode         fs.FileMode
		warning, err string // of the file
	}{
		{mode: 0o400},
		{mode: 0o600},
		{mode: 0o640},
		{mode: 0o750},
		{mode: 0o644, warning: " has mode 0644, so all users of this machine can read it: run chmod o-r "},
		{mode: 0o604, warning: " has mode 0604, so all users of this machine can read it: run chmod o-r "},
		{mode: 0o620, err: " has mode 0620, so other users of this machine can change it: run chmod go-w "},
		{mode: 0o602, err: " has mode 0602, so other users of this machine can change it: run chmod go-w "},
		{mode: 0o664, err: " has mode 0664, so other users of this machine can change it: run chmod go-w "},
		{mode: 0o666, err: " has mode 0666, so other users of this machine can change it: run chmod go-w "},
	} {
		require.NoError(t, os.Chmod(name, test.mode))
		text, warning, err := ReadPrivate(name)
		if test.err != "" {
			require.EqualError(t, err, name+test.err+name+", and check its content")
			require.Empty(t, text)
			continue
		}
		require.NoError(t, err, "mode %o", test.mode)
		require.Equal(t, "content", string(text))
		if test.warning == "" {
			require.Empty(t, warning, "mode %o", test.mode)
		} else {
			require.Equal(t, name+test.warning+name, warning)
		}
	}
	_, _, err := ReadPrivate(name + "-missing")
	require.ErrorIs(t, err, fs.ErrNotExist)

	_, warning, err := ReadPrivate(os.DevNull) // a device, whose mode is 0666
	require.NoError(t, err)
	require.Empty(t, warning)
}
