package cmdline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestParsePeer_RejectsInvalidPeers checks that ParsePeer accepts each documented form of a peer, and rejects other
// texts with an error that contains an example.
func TestParsePeer_RejectsInvalidPeers(t *testing.T) {
	for text, want := range map[string]api.Peer{
		"tcp://127.0.0.1:8047/foo": {ID: "foo", Addr: "127.0.0.1:8047"},
		"tcp://1.2.3.4:8047":       {ID: "1.2.3.4:8047", Addr: "1.2.3.4:8047"},
		"host.example:1/a/b":       {ID: "a/b", Addr: "host.example:1"},
		"a=1.2.3.4:8047":           {ID: "a", Addr: "1.2.3.4:8047"},
		"a/b=h:1":                  {ID: "a/b", Addr: "h:1"},
		"h:1=h:1":                  {ID: "h:1", Addr: "h:1"},
		"h:1/a=b:2":                {ID: "a=b:2", Addr: "h:1"},
		"[::1]:65535":              {ID: "[::1]:65535", Addr: "[::1]:65535"},
	} {
		p, err := ParsePeer(text)
		require.NoError(t, err, text)
		require.Equal(t, want, p)
		again, err := ParsePeer(PeerURL(p))
		require.NoError(t, err)
		require.Equal(t, p, again)
	}
	for _, text := range []string{
		"", "a", "http://h:1", "h", "h:", "h:0", "h:65536", "h:x", ":1", "0.0.0.0:1/a", "[::]:1/a", "h:1/", "h:1/a b", "h:1/a,b", "h:1/\x1b", "tcp://", "a=", "a=h", "=h:1", "a=:1", "a=b=h:1",
	} {
		_, err := ParsePeer(text)
		require.ErrorContains(t, err, "for example", "%q", text)
	}
}

// FuzzParsePeer parses arbitrary texts, and requires that each peer that ParsePeer accepts is the same after PeerURL
// has formatted it and ParsePeer has parsed it again.
func FuzzParsePeer(f *testing.F) {
	f.Add("tcp://127.0.0.1:8047/foo")
	f.Add("foo=127.0.0.1:8047")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ParsePeer(text); err == nil {
			again, err := ParsePeer(PeerURL(p))
			require.NoError(t, err)
			require.Equal(t, p, again)
		}
	})
}
