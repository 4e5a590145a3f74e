package connection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A check finds every missing znode, although a transaction fails at the first one.
func TestConfirm_FindsAllMissing(t *testing.T) {
	runTest(t, 4*time.Second, func(t *testing.T, w *fixture) {
		missing, err := confirm(w.conn, []string{w.path, "/missing-1", w.path, "/missing-2", w.path})
		require.NoError(t, err)
		require.Equal(t, []string{"/missing-1", "/missing-2"}, missing)
	})
}
