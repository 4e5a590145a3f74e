package counter

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// CompareAndSet compares versions, and Update returns the error of its function.
func TestValue(t *testing.T) {
	run(t, func(h *harness) {
		ctx := h.Context()
		v := newValue[[]string](h, h.connect(), "/app/words")
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
