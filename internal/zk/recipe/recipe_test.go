package recipe

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// TestOwn_IsRejectedByOtherRecipes checks that a recipe returns an error for an option of another recipe, instead
// of ignoring the option.
func TestOwn_IsRejectedByOtherRecipes(t *testing.T) {
	type mine struct{ size int }
	type others struct{}
	type options = []func(*Setup)
	apply := func(o func(*Setup), s *Setup) { o(s) }
	option := Own("mine.WithSize", func(m *mine) { m.size = 7 })

	var m mine
	_, err := NewOwn(new(zk.Conn), "/a", &m, options{option}, apply)
	require.NoError(t, err)
	require.Equal(t, 7, m.size)

	_, err = NewOwn(new(zk.Conn), "/a", &others{}, options{option}, apply)
	require.ErrorIs(t, err, connection.ErrInvalid)
	require.ErrorContains(t, err, "mine.WithSize")
	_, err = New(new(zk.Conn), "/a", options{option}, apply)
	require.ErrorIs(t, err, connection.ErrInvalid)
}
