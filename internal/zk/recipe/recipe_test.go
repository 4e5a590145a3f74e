package recipe

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// Fails if a recipe silently ignores an option of another package.
func TestOwn_RejectedByOtherRecipes(t *testing.T) {
	type mine struct{ size int }
	type others struct{}
	option := Own("mine.WithSize", func(m *mine) { m.size = 7 })

	var m mine
	_, err := NewOwn(new(zk.Conn), "/a", &m, []Option{option})
	require.NoError(t, err)
	require.Equal(t, 7, m.size)

	_, err = NewOwn(new(zk.Conn), "/a", &others{}, []Option{option})
	require.ErrorIs(t, err, zkerror.ErrInvalid)
	require.ErrorContains(t, err, "mine.WithSize")
	_, err = New(new(zk.Conn), "/a", []Option{option})
	require.ErrorIs(t, err, zkerror.ErrInvalid)
}
