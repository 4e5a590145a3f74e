package resignation

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParse_InverseOfFormat fails if a request is lost.
func TestParse_InverseOfFormat(t *testing.T) {
	for _, names := range [][]string{nil, {"a"}, {"a", "b"}} {
		parsed, ok := Parse(Format(names))
		require.True(t, ok)
		require.Equal(t, names, parsed)
	}
}

// TestParse_DataOfOtherApplications fails if the data of another application is read as requests.
func TestParse_DataOfOtherApplications(t *testing.T) {
	for _, data := range []string{"x", "\n", "x\na\nb", header + " \na"} {
		names, ok := Parse([]byte(data))
		require.False(t, ok, "%q", data)
		require.Empty(t, names, "%q", data)
	}
}

// TestAdd_OmitsCandidatesThatLeft fails if requests to former candidates accumulate.
func TestAdd_OmitsCandidatesThatLeft(t *testing.T) {
	present := []string{"a", "b", "c"}
	names := Add([]string{"gone", "a", "b"}, present, "a")
	require.Equal(t, []string{"b", "a"}, names)
	require.Equal(t, []string{"b"}, Remove(names, "a"))
	require.Equal(t, []string{"b", "a"}, names, "Remove has changed its argument")
}

// FuzzParse parses arbitrary data. Data with requests is the same after it was formatted.
func FuzzParse(f *testing.F) {
	f.Add([]byte(header + "\nn_0000000001"))
	f.Add([]byte(header))
	f.Fuzz(func(t *testing.T, data []byte) {
		if names, ok := Parse(data); ok && len(names) > 0 {
			require.Equal(t, data, Format(names))
		}
	})
}
