package api

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPeersAsText(t *testing.T) {
	require.Equal(t, "a@h:1", Peer{ID: "a", Addr: "h:1"}.String())
	require.Equal(t, "h:1", Peer{Addr: "h:1"}.String(), "a seed has no ID")
}

func TestErrorsCross(t *testing.T) {
	cross := func(err error) error {
		remote := RemoteError(ErrorBits(err), Peer{ID: "b"}, err.Error())
		require.EqualError(t, remote, err.Error())
		for _, s := range sentinels {
			require.Equal(t, errors.Is(err, s), errors.Is(remote, s), s)
		}
		return remote
	}
	for _, sent := range sentinels {
		cross(fmt.Errorf("doing this: %w", sent))
	}
	cross(errors.New("none of them"))
	remote := cross(fmt.Errorf("%w: %w", ErrClosed, &NotLeaderError{}))
	not, ok := errors.AsType[*NotLeaderError](remote)
	require.True(t, ok)
	require.Equal(t, "b", not.Leader.ID)
}
