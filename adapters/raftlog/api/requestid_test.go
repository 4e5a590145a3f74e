package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestParseRequestID_RoundTrip checks that an ID is the same after it was formatted and parsed, and that two
// IDs of the same time differ.
func TestParseRequestID_RoundTrip(t *testing.T) {
	for _, when := range []time.Time{time.UnixMilli(0), time.UnixMilli(1763000000123), time.UnixMilli(1<<48 - 1)} {
		a, b := RequestIDAt(when), RequestIDAt(when)
		require.True(t, a.Time().Equal(when))
		require.NotEqual(t, a, b)
		parsed, err := ParseRequestID(a.String())
		require.NoError(t, err)
		require.Equal(t, a, parsed)
		var read RequestID
		text, err := a.MarshalText()
		require.NoError(t, err)
		require.NoError(t, read.UnmarshalText(text))
		require.Equal(t, a, read)
	}
	require.WithinDuration(t, time.Now(), NewRequestID().Time(), time.Minute)
	require.True(t, RequestID{}.IsZero())
	require.False(t, NewRequestID().IsZero())
}

// TestParseRequestID_KeepsTimeOfObjectID checks that the ID that ParseRequestID creates from 12 bytes has the
// time of these bytes, and depends on nothing else.
func TestParseRequestID_KeepsTimeOfObjectID(t *testing.T) {
	id, err := ParseRequestID("5f43a1e0aabbccddee010203")
	require.NoError(t, err)
	require.Equal(t, int64(0x5f43a1e0), id.Time().Unix())
	other, err := ParseRequestID("5f43a1e0aabbccddee010204")
	require.NoError(t, err)
	require.NotEqual(t, id, other)
	again, err := ParseRequestID("5f43a1e0aabbccddee010203")
	require.NoError(t, err)
	require.Equal(t, id, again)
}

// TestParseRequestID_RejectsInvalidText checks that an invalid text is rejected, and that UnmarshalText then
// leaves the ID unchanged.
func TestParseRequestID_RejectsInvalidText(t *testing.T) {
	for _, s := range []string{"", "x", "5f43a1e0", "5f43a1e0aabbccddee0102030405060g", "5f43a1e0aabbccddee01020304050607ff"} {
		_, err := ParseRequestID(s)
		require.ErrorIs(t, err, ErrRequestIDSyntax)
		id := NewRequestID()
		before := id
		require.ErrorIs(t, id.UnmarshalText([]byte(s)), ErrRequestIDSyntax)
		require.Equal(t, before, id)
	}
}

// FuzzParse parses arbitrary texts, and checks that each ID that is accepted is the same after it was formatted
// and parsed again.
func FuzzParse(f *testing.F) {
	f.Add("0123456789abcdef0123456789abcdef")
	f.Add("0123456789ABCDEF01234567")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseRequestID(text)
		if err != nil {
			require.ErrorIs(t, err, ErrRequestIDSyntax)
			return
		}
		again, err := ParseRequestID(id.String())
		require.NoError(t, err)
		require.Equal(t, id, again)
	})
}
