//go:build unix

package cmdline

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReadFile_RejectsFileThatIsNotRegular checks that ReadFile rejects files that are not regular, such as named
// pipes, without waiting for another process to write to them, and reads a file that Kubernetes has mounted by
// symbolic links. Only ReadConfig accepts a file that can be read only once.
func TestReadFile_RejectsFileThatIsNotRegular(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, os.Symlink(pipe, link))
	for _, name := range []string{pipe, link, dir, "/dev/zero"} {
		result := make(chan error, 2)
		go func() {
			_, err := ReadFile(name)
			result <- err
			_, _, err = ReadPrivate(name)
			result <- err
		}()
		for range 2 {
			select {
			case err := <-result:
				require.ErrorContains(t, err, name+" is not a regular file")
			case <-time.After(time.Minute):
				require.Fail(t, "blocked", name)
			}
		}
	}

	require.NoError(t, os.Mkdir(filepath.Join(dir, "..2030"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "..2030", "secret"), []byte("content"), 0o600))
	require.NoError(t, os.Symlink("..2030", filepath.Join(dir, "..data")))
	mounted := filepath.Join(dir, "secret")
	require.NoError(t, os.Symlink("..data/secret", mounted))
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	_, err = w.WriteString("content")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	opened := fmt.Sprintf("/dev/fd/%d", r.Fd())
	_, _, err = ReadPrivate(opened)
	require.ErrorContains(t, err, opened+" is not a regular file", "a file that cannot be read again")
	for _, name := range []string{mounted, opened} {
		text, _, err := ReadConfig(name)
		require.NoError(t, err)
		require.Equal(t, "content", string(text), name)
	}
}

// TestReadFile_RejectsFileThatIsTooLarge checks that ReadFile rejects a file that is too large without reading the
// file into memory.
func TestReadFile_RejectsFileThatIsTooLarge(t *testing.T) {
	name := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(name, nil, 0o600))
	require.NoError(t, os.Truncate(name, maxSize))
	text, err := ReadFile(name)
	require.NoError(t, err)
	require.Len(t, text, maxSize)
	require.NoError(t, os.Truncate(name, 40<<30)) // the file is sparse, so it uses no space
	_, err = ReadFile(name)
	require.ErrorContains(t, err, name+" has more than 4194304 bytes")
	_, _, err = ReadPrivate(name)
	require.ErrorContains(t, err, name+" has more than 4194304 bytes")
}
