package lock

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A context can outlive its hold. Then Lock does not reject it, because there is no hold to wait
// for.
func TestContext_OutlivesHold(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		a := w.lock(w.connect())
		ctx := context.WithoutCancel(a.holds().Context())
		_, err := w.mutex(a.conn).Lock(ctx)
		require.ErrorIs(w, err, ErrReentrant)
		a.release()
		h, err := w.mutex(a.conn).Lock(ctx)
		require.NoError(w, err)
		require.NoError(w, h.Release())

		r := w.read(a.conn)
		ctx = context.WithoutCancel(r.holds().Context())
		r.release()
		x, err := w.rw(a.conn).TryLock(ctx)
		require.NoError(w, err)
		require.NoError(w, x.Release())
	})
}
