package disk

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOpenPrivate_NamedPipe fails if opening a named pipe waits for a writer.
func TestOpenPrivate_NamedPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err := OpenPrivate(path)
	require.ErrorContains(t, err, path+": it is not a regular file")
}
