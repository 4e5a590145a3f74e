package zkdial

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestParseServers_RejectsInvalidLists checks that ParseServers rejects invalid lists, and adds the default
// port to the elements of a valid list.
func TestParseServers_RejectsInvalidLists(t *testing.T) {
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

// TestHostProvider_PausesAfterFailedRound checks that Next returns retryStart, after which the client library
// pauses, after each round of failed attempts, and not after a connection that lasted.
func TestHostProvider_PausesAfterFailedRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHostProvider([]string{"a:1", "b:1"})
		require.Equal(t, 2, h.Len())
		requirePauses := func(all ...bool) {
			t.Helper()
			for round, want := range all {
				_, retryStart := h.Next()
				require.Equal(t, want, retryStart, "round %d", round)
			}
		}
		requirePauses(false, false, true, false, true, false)
		h.Connected()
		time.Sleep(lastingDuration)
		requirePauses(false, false, true, false)
		time.Sleep(time.Hour)
		requirePauses(true, false)
	})
}

// TestHostProvider_PausesAfterShortConnections checks that Next returns retryStart, after which the client
// library pauses, if each server closes the connection right after it has accepted it.
func TestHostProvider_PausesAfterShortConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := range 3 {
			h := newHostProvider([]string{"a:1", "b:1", "c:1"}[:n+1])
			for i := range 30 {
				_, retryStart := h.Next()
				require.Equal(t, i > 0 && i%(n+1) == 0, retryStart, "%d servers, attempt %d", n+1, i)
				h.Connected()
				time.Sleep(lastingDuration - 1)
			}
		}
	})
}

// FuzzParseServers checks that ParseServers does not change a list that it has returned when the list is parsed
// again.
func FuzzParseServers(f *testing.F) {
	f.Add(" a, b:1 ,,::1,[::2]:3,[::4],10.0.0.1:65535")
	f.Add("http://a:2181/app")
	f.Fuzz(func(t *testing.T, text string) {
		servers, err := ParseServers(text)
		if err != nil {
			require.ErrorIs(t, err, ErrServers)
			return
		}
		again, err := ParseServers(strings.Join(servers, ","))
		require.NoError(t, err)
		require.Equal(t, servers, again)
	})
}
