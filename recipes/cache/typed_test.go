package cache

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// TestTyped_DecodesValues checks that znodes and events are decoded to values, and that a znode whose data is in
// another format is reported with an error instead of being omitted.
func TestTyped_DecodesValues(t *testing.T) {
	type limit struct{ Max int }
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/limits")
		createWith(h, "/limits/a", `{"Max":7}`)
		createWith(h, "/limits/b", "{")
		c := openCache(h, "/limits", Children)
		limits := Of(c, recipes.JSONCodec[limit]())
		require.NoError(h, c.Sync(h.Context()))
		value, found, err := limits.Get("/limits/a")
		require.NoError(h, err)
		require.True(h, found)
		require.Equal(h, limit{7}, value)
		_, found, err = limits.Get("/limits/b")
		require.True(h, found)
		require.ErrorIs(h, err, recipes.ErrFormat)
		require.ErrorContains(h, err, "value of /limits/b")
		_, found, err = limits.Get("/limits/c")
		require.NoError(h, err)
		require.False(h, found)

		set(h, "/limits/a", `{"Max":8}`)
		events := 0
		for e := range c.Events() {
			if e.Path == "/limits/b" {
				_, err := limits.Value(e.Node)
				require.ErrorIs(h, err, recipes.ErrFormat)
				events++
			}
			if e.Path == "/limits/a" {
				value, err = limits.Value(e.Node)
				require.NoError(h, err)
				events++
			}
			if events >= 2 && value.Max == 8 {
				break
			}
		}

		_, err = limits.Value(Znode{Path: "/limits/d", Err: recipes.ErrPermission})
		require.ErrorIs(h, err, recipes.ErrPermission)
		names := openCache(h, "/limits", Children, WithoutData())
		require.NoError(h, names.Sync(h.Context()))
		_, _, err = Of(names, recipes.JSONCodec[limit]()).Get("/limits/a")
		require.ErrorIs(h, err, recipes.ErrInvalid)
		_, _, err = Of(c, recipes.Codec[limit]{}).Get("/limits/a")
		require.ErrorIs(h, err, recipes.ErrInvalid)
	})
}
