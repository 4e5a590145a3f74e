package zkdial

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParseServers fails if an invalid list is accepted, or a valid one changed.
func TestParseServers(t *testing.T) {
	servers, err := ParseServers(" a, b:1 ,,::1,[::2]:3,[::4],10.0.0.1:65535")
	require.NoError(t, err)
	require.Equal(t, []string{"a:2181", "b:1", "[::1]:2181", "[::2]:3", "[::4]:2181", "10.0.0.1:65535"}, servers)

	for _, text := range []string{
		"", ",", "a:2181/app", "http://a:2181", "a/app", "a,b:2181/", "a:b", "a:0", "a:65536", "a:-1", "a:", ":2181", "a:1:2", "a b", "[::1", "[a]b",
	} {
		_, err := ParseServers(text)
		require.ErrorIs(t, err, ErrServers, "%q", text)
	}
	_, err = ParseServers("a:2181/app/b")
	require.ErrorContains(t, err, `connect to "a:2181" and begin the paths of znodes with "/app/b"`)
}

// TestHostProvider fails if retryStart is not returned after each round of failed attempts.
func TestHostProvider(t *testing.T) {
	h := newHostProvider([]string{"a:1", "b:1"})
	require.Equal(t, 2, h.Len())
	for round, want := range []bool{false, false, true, false, true} {
		_, retryStart := h.Next()
		require.Equal(t, want, retryStart, "round %d", round)
	}
	h.Connected()
	_, retryStart := h.Next()
	require.False(t, retryStart)
}
