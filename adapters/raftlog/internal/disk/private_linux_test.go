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
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip("no named pipes here:", err)
	}
	_, err := OpenPrivate(path)
	require.ErrorContains(t, err, path+": it is not a regular file")
}
