package link

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGreeting_LongestFitsIntoFrame(t *testing.T) {
	long := strings.Repeat("x", maxField)
	longest := Claim{Founders: long, Founding: long[:maxClaimField], Instance: long[:maxClaimField], Start: math.MaxUint64, Process: long[:maxClaimField]}
	g := greeting{hello: Hello{long, long, long, true, PurposeRaft, longest}, wantedID: long, proof: make([]byte, proofSize)}
	require.LessOrEqual(t, len(g.encode()), maxHandshakeFrame)
}

func TestDecodeGreeting_RejectsInvalidMessages(t *testing.T) {
	good := (&greeting{versions: supported, wantedID: "b"}).encode()
	for n := range good {
		_, err := decodeGreeting(good[:n])
		require.ErrorIs(t, err, errNotHandshake, n)
	}
	for name, b := range map[string][]byte{
		"trailing byte": append(bytes.Clone(good), 0),
		"role":          []byte(strings.Replace(string(good), magic+"\x04\x04\x00\x00", magic+"\x04\x04\x00\x02", 1)),
		"few texts":     appendText(encodeContent(supported, 0, true, "", "", "", "", "", "c1", "a", "b"), ""),
		"no range":      (&greeting{versions: Versions{5, 4}}).encode(),
		"long text":     (&greeting{versions: supported, wantedID: strings.Repeat("x", maxField+1)}).encode(),
		"proof":         (&greeting{versions: supported, proof: []byte("x")}).encode(),
		"start":         appendText(encodeContent(supported, 0, true, "", "", "01", "", "", "c1", "a", "b", "a:7"), ""),
	} {
		_, err := decodeGreeting(b)
		require.ErrorIs(t, err, errNotHandshake, name)
	}
}

// TestDecodeGreeting_AcceptsTextsOfLaterVersion checks that decodeGreeting accepts a greeting to which a later
// version has appended texts, and that the proof covers these texts.
func TestDecodeGreeting_AcceptsTextsOfLaterVersion(t *testing.T) {
	content := encodeContent(Versions{4, 7}, 1, true, "f", "i", "3", "p", "l", "c1", "a", "b", "a:7", "new", "newer")
	g, err := decodeGreeting(appendText(content, make([]byte, proofSize)))
	require.NoError(t, err)
	require.Equal(t, Versions{4, 7}, g.versions)
	require.Equal(t, Hello{"c1", "a", "a:7", true, PurposeRaft, Claim{Founding: "f", Founders: "l", Instance: "i", Start: 3, Process: "p"}}, g.hello)
	require.Equal(t, content, g.content)
}

// FuzzDecodeHandshake decodes arbitrary bytes as each message of the handshake. The decoder must reject the
// bytes, or decode the same message again after encoding it.
func FuzzDecodeHandshake(f *testing.F) {
	g := greeting{versions: supported, hello: Hello{"c1", "a", "a:7", true, PurposeRaft, testClaim("a")}, wantedID: "b", proof: make([]byte, proofSize)}
	a := reply{versions: supported, reason: ReasonID, id: "b", addr: "b:7", peer: true, claim: testClaim("b"), text: "text", proof: make([]byte, proofSize)}
	f.Add(g.encode())
	f.Add(a.encode())
	f.Add((&greeting{versions: Versions{4, 9}}).encode())
	f.Add([]byte(magic + "\x03"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if g, err := decodeGreeting(b); err == nil {
			again, err := decodeGreeting(g.encode())
			require.NoError(t, err)
			g.content, again.content = nil, nil
			require.Equal(t, g, again)
		} else {
			require.True(t, errors.Is(err, errNotHandshake) || errors.Is(err, errVersion), "%v", err)
		}
		if a, err := decodeReply(b); err == nil {
			again, err := decodeReply(a.encode())
			require.NoError(t, err)
			a.content, again.content = nil, nil
			require.Equal(t, a, again)
		}
	})
}
