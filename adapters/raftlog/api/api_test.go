package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPeer_String checks that the text of a peer contains its ID and its address.
func TestPeer_String(t *testing.T) {
	require.Equal(t, "a@h:1", Peer{ID: "a", Addr: "h:1"}.String())
	require.Equal(t, "h:1", Peer{Addr: "h:1"}.String(), "a seed has no ID")
}
