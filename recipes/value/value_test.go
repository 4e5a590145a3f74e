package value

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestValue_ReplacesOnlyExpectedVersion checks that CompareAndSet succeeds only if the znode has the expected
// version, and that Update returns the error of its function.
func TestValue_ReplacesOnlyExpectedVersion(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		ctx := h.Context()
		v := newValue[[]string](h, h.Connect(), "/app/words")
		first, err := v.CompareAndSet(ctx, Version{}, []string{"one"})
		require.NoError(h, err)
		require.NotZero(h, first.Zxid())
		_, err = v.CompareAndSet(ctx, Version{}, []string{"two"})
		require.ErrorIs(h, err, ErrChanged)
		second, err := v.CompareAndSet(ctx, first, []string{"two"})
		require.NoError(h, err)
		words, version, err := v.Get(ctx)
		require.NoError(h, err)
		require.Equal(h, []string{"two"}, words)
		require.Equal(h, second, version)
		stop := errors.New("stop")
		_, err = v.Update(ctx, func([]string) ([]string, error) { return nil, stop })
		require.ErrorIs(h, err, stop)
	})
}

// TestValue_CopiesDataOfCodec checks that a Value does not remember data that the caller changes later, even if
// the codec returns its argument without a copy.
func TestValue_CopiesDataOfCodec(t *testing.T) {
	identity := func(b []byte) ([]byte, error) { return b, nil }
	increment := func(b []byte) ([]byte, error) {
		b[0]++
		return b, nil
	}
	for name, change := range map[string]func(h *bubble.Test, v *Value[[]byte], written []byte){
		"value given to Set": func(_ *bubble.Test, _ *Value[[]byte], written []byte) { written[0]++ },
		"value given to an Update that fails": func(h *bubble.Test, v *Value[[]byte], _ []byte) {
			ctx, cancel := context.WithCancel(h.Context())
			cancel()
			_, err := v.Update(ctx, increment)
			require.ErrorIs(h, err, context.Canceled)
			require.NotErrorIs(h, err, recipes.ErrUnconfirmed, "nothing was sent")
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(h *bubble.Test) {
				v, err := New(h.Connect(), node, recipes.Codec[[]byte]{Encode: identity, Decode: identity})
				require.NoError(h, err)
				written := []byte{5}
				_, err = v.Set(h.Context(), written)
				require.NoError(h, err)
				change(h, v, written)
				_, err = v.Update(h.Context(), increment)
				require.NoError(h, err)
				stored, _, err := v.Get(h.Context())
				require.NoError(h, err)
				require.Equal(h, []byte{6}, stored)
			})
		})
	}
}

// TestGet_WaitsForLaggingServerOfNewSession checks that Get does not return an old value if a client reaches a
// server that lags behind after its session has expired. The server begins the new session in a transaction, so it
// answers only when it has applied everything that the client has seen before.
func TestGet_WaitsForLaggingServerOfNewSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := zktest.StartEnsemble(t, 3)
		previous, lagging, current := cluster.Server(0), cluster.Server(1), cluster.Server(2)
		h := &bubble.Test{T: t, Server: previous}
		conn := bubble.ConnectFrom(h, cluster, 0, bubble.SessionTimeout)
		expired := conn.SessionID()
		v := newValue[int](h, conn, "/n")
		changes := v.Watch(h.Context())
		lagging.Lag()
		_, err := v.Set(h.Context(), 1)
		require.NoError(h, err)
		synctest.Wait()
		require.Equal(h, 1, (<-changes).Value)
		// The server current tells the client that its session has expired, and refuses connections afterwards, so
		// that the client reaches only the lagging server.
		previous.Refuse(true)
		learned := h.Server.After(zktest.Match{Op: zktest.OpConnect, Session: expired, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			require.Same(h, current, q.Server)
			current.Refuse(true)
			return zktest.Pass(q)
		})
		require.NoError(h, h.Server.ExpireSession(expired))
		got := bubble.Async(func() int {
			n, _, err := v.Get(h.Context())
			require.NoError(h, err)
			return n
		})
		time.Sleep(time.Minute)
		bubble.RequireRun(h, learned)
		lagging.Heal()
		require.Equal(h, 1, <-got)
		require.Equal(h, lagging.Name(), conn.Server())
		require.NotEqual(h, expired, conn.SessionID())
		synctest.Wait()
		require.Empty(h, changes)
	})
}
