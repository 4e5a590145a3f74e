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
	longest := Claim{Founding: long[:maxClaimField], Instance: long[:maxClaimField], Start: math.MaxUint64, Process: long[:maxClaimField]}
	g := greeting{hello: Hello{long, long, long, true, PurposeRaft, longest}, wantedID: long, proof: make([]byte, proofSize)}
	require.LessOrEqual(t, len(g.encode()), maxHandshakeFrame)
}

func TestDecodeGreeting_RejectsInvalidMessages(t *testing.T) {
	good := (&greeting{wantedID: "b"}).encode()
	for n := range good {
		_, err := decodeGreeting(good[:n])
		require.ErrorIs(t, err, errNotHandshake, n)
	}
	for name, b := range map[string][]byte{
		"trailing byte": append(bytes.Clone(good), 0),
		"flags":         []byte(strings.Replace(string(good), magic+"\x03\x00\x00", magic+"\x03\x00\x02", 1)),
		"long text":     (&greeting{wantedID: strings.Repeat("x", maxField+1)}).encode(),
		"proof":         (&greeting{proof: []byte("x")}).encode(),
		"start":         encodeMessage(0, true, "", "", "01", "", "c1", "a", "b", "a:7", ""),
	} {
		_, err := decodeGreeting(b)
		require.ErrorIs(t, err, errNotHandshake, name)
	}
}

// FuzzHello decodes arbitrary bytes. They are rejected, or the encoding of the result is the same.
func FuzzHello(f *testing.F) {
	g := greeting{hello: Hello{"c1", "a", "a:7", true, PurposeRaft, testClaim("a")}, wantedID: "b", proof: make([]byte, proofSize)}
	a := reply{reason: ReasonID, id: "b", addr: "b:7", peer: true, claim: testClaim("b"), text: "text", proof: make([]byte, proofSize)}
	f.Add(g.encode())
	f.Add(a.encode())
	f.Add((&greeting{}).encode())
	f.Add([]byte(magic + "\x03"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if g, err := decodeGreeting(b); err == nil {
			require.Equal(t, b, g.encode())
		} else {
			require.True(t, errors.Is(err, errNotHandshake) || errors.Is(err, errVersion), "%v", err)
		}
		if a, err := decodeReply(b); err == nil {
			require.Equal(t, b, a.encode())
		}
	})
}
