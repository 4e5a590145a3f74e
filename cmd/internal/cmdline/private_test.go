package cmdline

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadPrivate_RejectsFilesOthersCanWrite checks that ReadPrivate rejects a file that other users can write, and
// warns of a file that all users can read.
func TestReadPrivate_RejectsFilesOthersCanWrite(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the mode of a file does not describe who has access")
	}
	name := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(name, []byte("content"), 0o600))
	info, err := os.Stat(name)
	require.NoError(t, err)
	ofGroup := func(err string) string {
		if hasPrivateGroup(info) {
			return ""
		}
		return err
	}
	for _, test := range []struct {
		mode         fs.FileMode
		warning, err string // the expected warning and error for the file
	}{
		{mode: 0o400},
		{mode: 0o600},
		{mode: 0o640},
		{mode: 0o750},
		{mode: 0o644, warning: " has mode 0644, so all users of this machine can read it: run chmod o-r "},
		{mode: 0o604, warning: " has mode 0604, so all users of this machine can read it: run chmod o-r "},
		{mode: 0o620, err: ofGroup(" has mode 0620, so other users of this machine can change it: run chmod go-w ")},
		{mode: 0o602, err: " has mode 0602, so other users of this machine can change it: run chmod go-w "},
		{mode: 0o660, err: ofGroup(" has mode 0660, so other users of this machine can change it: run chmod go-w ")},
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
			require.Equal(t, name+test.warning+name+", or set defaultMode: 0400 in its volume if Kubernetes has mounted it", warning)
		}
	}
	_, _, err = ReadPrivate(name + "-missing")
	require.ErrorIs(t, err, fs.ErrNotExist)

	_, warning, err := ReadConfig(os.DevNull) // this file is a device, whose mode is 0666
	require.NoError(t, err)
	require.Empty(t, warning)
}

// TestCheckPrivate_RejectsFileWritableBySharedGroup checks that checkPrivate rejects a file that a group with other
// members can write, and accepts a file that only the private group of its owner can write.
func TestCheckPrivate_RejectsFileWritableBySharedGroup(t *testing.T) {
	for _, test := range []struct {
		user, group uint32
		private     bool
	}{{1000, 1000, true}, {1000, 1001, false}, {1000, 0, false}, {0, 1000, false}, {0, 0, false}} {
		for _, mode := range []fs.FileMode{0o620, 0o660, 0o664, 0o622, 0o662, 0o602} {
			warning, err := checkPrivate("name", mode, isPrivateGroup(test.user, test.group))
			if test.private && mode&0o002 == 0 {
				require.NoError(t, err, "%v, mode %o", test, mode)
				require.Equal(t, mode == 0o664, warning != "")
			} else {
				require.ErrorContains(t, err, "other users of this machine can change it", "%v, mode %o", test, mode)
			}
		}
	}
}
