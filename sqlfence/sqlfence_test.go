package sqlfence_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/sqlfence"
)

// TestNewFence_RejectsInvalidArguments checks that NewFence returns ErrInvalid for invalid arguments. The tests
// of adapters/changefeed/postgres and adapters/changefeed/mysql test fences in databases.
func TestNewFence_RejectsInvalidArguments(t *testing.T) {
	for _, dialect := range []sqlfence.Dialect{sqlfence.PostgreSQL, sqlfence.MySQL} {
		for _, opts := range [][]sqlfence.Option{{sqlfence.WithTable("")}, {sqlfence.WithTable("a b")}, {sqlfence.WithTable("a;--")}, {nil}} {
			_, err := sqlfence.NewFence(dialect, "x", opts...)
			require.ErrorIs(t, err, leaderelection.ErrInvalid)
		}
		_, err := sqlfence.NewFence(dialect, "")
		require.ErrorIs(t, err, leaderelection.ErrInvalid)
	}
	_, err := sqlfence.NewFence(0, "x")
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	_, err = sqlfence.NewFence(sqlfence.MySQL+1, "x")
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
}
