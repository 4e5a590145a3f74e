package raftlog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
)

// Names stand in the log as text. One that is not text would come back as another one: the
// candidate would ask for its place for ever, and two elections would be one.
func TestNamesThatCannotBeWritten(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n := w.node(w.leader(t))
		before := n.Info().LastIndex
		for _, name := range []string{"", "\xff", strings.Repeat("n", 1025)} {
			_, err := raftlog.NewElection(n, name)
			require.ErrorIs(t, err, leaderelection.ErrInvalidPath)
			require.ErrorIs(t, raftlog.DeleteElection(t.Context(), n, name), leaderelection.ErrInvalidPath)
			require.ErrorIs(t, raftlog.RestartElection(t.Context(), n, name), leaderelection.ErrInvalidPath)
		}
		_, err := raftlog.NewElection(n, "e", raftlog.WithClientName("\xff"))
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
		require.Equal(t, before, n.Info().LastIndex)
	})
}
