package resignation

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFormatAndParse(t *testing.T) {
	for _, names := range [][]string{nil, {"a"}, {"a", "b"}} {
		parsed, ok := Parse(Format(names))
		require.True(t, ok)
		require.Equal(t, names, parsed)
	}
}

// Data of another application is not a request, whatever its lines are.
func TestParseForeignData(t *testing.T) {
	for _, data := range []string{"x", "\n", "x\na\nb", head + " \na"} {
		names, ok := Parse([]byte(data))
		require.False(t, ok, "%q", data)
		require.Empty(t, names, "%q", data)
	}
}

func TestAddAndRemove(t *testing.T) {
	present := []string{"a", "b", "c"}
	names := Add([]string{"gone", "a", "b"}, present, "a")
	require.Equal(t, []string{"b", "a"}, names)
	require.Equal(t, []string{"b"}, Remove(names, "a"))
	require.Equal(t, []string{"b", "a"}, names, "Remove has changed its argument")
}
