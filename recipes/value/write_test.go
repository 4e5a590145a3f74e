package value

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// firstMulti is the first transaction.
var firstMulti = zktest.Match{Op: zktest.OpMulti, Nth: 1}

// The write that skips version -1 is applied once if its reply is lost, and returns the version of
// the znode.
func TestTrap07_33_ReplyLostAtOverflow(t *testing.T) {
	for name, fault := range map[string]zktest.HookFunc{"reply received": zktest.Pass, "reply lost": zktest.Cut} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				conn := h.connect()
				v := newValue[int](h, conn, "/n")
				_, err := v.Set(h.Context(), 1)
				require.NoError(h, err)
				require.NoError(h, h.srv.SetVersion("/n", -2))
				_, version, err := v.Get(h.Context())
				require.NoError(h, err)
				h.srv.After(firstMulti, fault)
				version, err = v.CompareAndSet(h.Context(), version, 2)
				require.NoError(h, err)
				_, stat, err := conn.Get("/n")
				require.NoError(h, err)
				require.Zero(h, stat.Version)
				require.Equal(h, versionOf(stat), version)
				version, err = v.CompareAndSet(h.Context(), version, 3)
				require.NoError(h, err)
				require.EqualValues(h, 1, version.version)
			})
		})
	}
}

// A server closes the connection when it receives a request that is too large, so the value must
// be rejected before it is sent.
func TestTrap37_ValueTooLarge(t *testing.T) {
	run(t, func(h *harness) {
		v := newValue[string](h, h.connect(zk.WithMaxBufferSize(0)), node)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
		defer cancel()
		for _, size := range []int{0xfffff, 1200 << 10, 3 << 20} {
			_, err := v.Set(ctx, strings.Repeat("x", size))
			require.ErrorIs(h, err, recipes.ErrTooLarge)
			_, err = v.CompareAndSet(ctx, Version{}, strings.Repeat("x", size))
			require.ErrorIs(h, err, recipes.ErrTooLarge)
		}
		_, err := v.Set(ctx, strings.Repeat("x", 1<<20-8<<10))
		require.NoError(h, err)
		require.Zero(h, time.Since(begin))
	})
}
