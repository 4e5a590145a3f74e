package disk

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOpen_RejectsNamedPipeWithoutBlocking checks that opening a named pipe returns an error and does
// not wait for a writer.
func TestOpen_RejectsNamedPipeWithoutBlocking(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err := OpenPrivate(path)
	require.ErrorContains(t, err, path+": not a regular file")
	_, err = OS(dir).OpenRead("pipe")
	require.ErrorContains(t, err, path+": not a regular file")
}

// TestOpenPrivate_RejectsSymlink checks that OpenPrivate does not follow a symbolic link, by which
// another user could make this process read any of its files.
func TestOpenPrivate_RejectsSymlink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(file, []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(file, link))
	_, err := OpenPrivate(link)
	require.ErrorContains(t, err, "a link is not followed: move the file to "+link)
}
