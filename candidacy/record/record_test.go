package record

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecode checks that Decode returns the name and the value that Encode has encoded, for each name and value
// that arbitrary data contains.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("name"))
	f.Add(Encode("name", "value"))
	f.Fuzz(func(t *testing.T, data []byte) {
		name, value := Decode(data)
		again, same := Decode(Encode(name, value))
		require.Equal(t, []string{name, value}, []string{again, same})
	})
}

// TestParseRequests_InvertsFormatRequests checks that ParseRequests returns the names that were passed to
// FormatRequests.
func TestParseRequests_InvertsFormatRequests(t *testing.T) {
	for _, names := range [][]string{nil, {"a"}, {"a", "b"}} {
		parsed, ok := ParseRequests(FormatRequests(names))
		require.True(t, ok)
		require.Equal(t, names, parsed)
	}
}

// TestParseRequests_RejectsDataOfOtherApplications checks that ParseRequests does not take the data of another
// application for requests.
func TestParseRequests_RejectsDataOfOtherApplications(t *testing.T) {
	for _, data := range []string{"x", "\n", "x\na\nb", requestsHeader + " \na"} {
		names, ok := ParseRequests([]byte(data))
		require.False(t, ok, "%q", data)
		require.Empty(t, names, "%q", data)
	}
}

// TestAddRequests_OmitsCandidatesThatLeft checks that AddRequests removes the names of candidates that have
// left, because such names would accumulate in the data.
func TestAddRequests_OmitsCandidatesThatLeft(t *testing.T) {
	present := []string{"a", "b", "c"}
	names := AddRequests([]string{"gone", "a", "b"}, present, "a")
	require.Equal(t, []string{"b", "a"}, names)
	require.Equal(t, []string{"b"}, RemoveRequests(names, "a"))
	require.Equal(t, []string{"b", "a"}, names, "Remove has changed its argument")
}

// FuzzParseRequests checks that FormatRequests returns the data that ParseRequests has parsed.
func FuzzParseRequests(f *testing.F) {
	f.Add([]byte(requestsHeader + "\nn_0000000001"))
	f.Add([]byte(requestsHeader))
	f.Fuzz(func(t *testing.T, data []byte) {
		if names, ok := ParseRequests(data); ok && len(names) > 0 {
			require.Equal(t, data, FormatRequests(names))
		}
	})
}
