package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDecode_ReturnsEncodedPayloads checks that decode returns the payloads that encode has encoded, and
// rejects data that is incomplete or malformed.
func TestDecode_ReturnsEncodedPayloads(t *testing.T) {
	for _, parts := range [][][]byte{nil, {[]byte("x")}, {[]byte("one"), {}, []byte("three")}} {
		raw := encode(parts...)
		read, err := decode(raw)
		require.NoError(t, err)
		require.Equal(t, len(parts), len(read))
		for i := range parts {
			require.Equal(t, string(parts[i]), string(read[i]))
		}
		for n := range raw {
			_, err := decode(raw[:n])
			require.ErrorIs(t, err, errMalformed, "%d bytes", n)
		}
	}
	// Curator's ItemSerializer writes these bytes.
	require.Equal(t, []byte{0, 1, 0, 1, 1, 0, 0, 0, 3, 'a', 'b', 'c', 2}, encode([]byte("abc")))
	for _, raw := range [][]byte{{0, 1, 0, 2, 2}, {0, 1, 0, 1, 3}, {0, 1, 0, 1, 1, 0xff, 0xff, 0xff, 0xff, 2}} {
		_, err := decode(raw)
		require.ErrorIs(t, err, errMalformed)
	}
}

// FuzzDecode checks that encode restores the data of the payloads that decode returns.
func FuzzDecode(f *testing.F) {
	f.Add(encode([]byte("abc")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if parts, err := decode(raw); err == nil {
			again := encode(parts...)
			require.Equal(t, again, raw[:len(again)])
		}
	})
}
