package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestError_KeepsWrappedErrors checks that a decoded error wraps the same errors of package api as the error
// that was encoded.
func TestError_KeepsWrappedErrors(t *testing.T) {
	transfer := func(err error) error {
		d := Decoder{B: AppendError(nil, err)}
		remote := d.Error()
		require.NoError(t, d.End())
		require.EqualError(t, remote, Cut(err.Error(), MaxText))
		for _, s := range sentinels {
			require.Equal(t, errors.Is(err, s), errors.Is(remote, s), s)
		}
		require.Equal(t, IsKnown(err), IsKnown(remote))
		return remote
	}
	for _, sent := range sentinels {
		transfer(fmt.Errorf("operation: %w", sent))
	}
	require.False(t, IsKnown(transfer(errors.New("another error"))))
	transfer(errors.New(strings.Repeat("x", 2*MaxText)))
	remote := transfer(fmt.Errorf("%w: %w", api.ErrClosed, &api.NotLeaderError{Leader: api.Peer{ID: "b"}}))
	not, ok := errors.AsType[*api.NotLeaderError](remote)
	require.True(t, ok)
	require.Equal(t, "b", not.Leader.ID)
}
