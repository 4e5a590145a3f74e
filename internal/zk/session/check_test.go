package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A check names every path that is missing: the failure of one operation does not hide the
// failures of those behind it.
func TestCheckFindsAllMissing(t *testing.T) {
	bubble(t, 4*time.Second, func(t *testing.T, w *world) {
		missing, err := confirm(w.conn, []string{w.path, "/missing-1", w.path, "/missing-2", w.path})
		require.NoError(t, err)
		require.Equal(t, []string{"/missing-1", "/missing-2"}, missing)
	})
}
