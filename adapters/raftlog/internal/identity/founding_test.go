package identity_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
)

// TestFounding_DependsOnConfiguration checks that the identity of a cluster depends on each part of its
// configuration, but not on the order of the voters.
func TestFounding_DependsOnConfiguration(t *testing.T) {
	a, b := api.Peer{ID: "a", Addr: "a:1"}, api.Peer{ID: "b", Addr: "b:1"}
	is := identity.Founding("x", []api.Peer{a, b}, time.Hour, time.Second)
	require.Equal(t, is, identity.Founding("x", []api.Peer{b, a}, time.Hour, time.Second))
	for _, other := range []string{
		identity.Founding("y", []api.Peer{a, b}, time.Hour, time.Second),
		identity.Founding("x", []api.Peer{a}, time.Hour, time.Second),
		identity.Founding("x", []api.Peer{a, {ID: "b", Addr: "b:2"}}, time.Hour, time.Second),
		identity.Founding("x", []api.Peer{a, b}, time.Minute, time.Second),
		identity.Founding("x", []api.Peer{a, b}, time.Hour, time.Minute),
		identity.Founding("xa", []api.Peer{a, b}, time.Hour, time.Second),
	} {
		require.NotEqual(t, is, other)
	}
}
