package counter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// A value that the connection cannot receive is an error, and later values
// are delivered.
func TestValueTooLarge(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		big, _, err := srv.Connect(timeout)
		require.NoError(t, err)
		writer, err := NewValue[[]byte](big, node, JSON[[]byte](), recipes.WithSessionTimeout(timeout))
		require.NoError(t, err)
		_, err = writer.Set(t.Context(), make([]byte, 100<<10))
		require.NoError(t, err)
		reader, err := NewValue[[]byte](connect(t, srv), node, JSON[[]byte](), recipes.WithSessionTimeout(timeout))
		require.NoError(t, err)
		_, _, err = reader.Get(t.Context())
		require.ErrorIs(t, err, recipes.ErrTooLarge)
		changes := reader.Changes(t.Context())
		first := <-changes
		require.ErrorIs(t, first.Err, recipes.ErrTooLarge)
		require.NotZero(t, first.Version)
		_, err = writer.Set(t.Context(), []byte("small"))
		require.NoError(t, err)
		time.Sleep(time.Second)
		second := <-changes
		require.NoError(t, second.Err)
		require.Equal(t, "small", string(second.Value))
	})
}
