package codec

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func requireRoundTrip[T any](t *testing.T, c Codec[T], value T, data string) {
	t.Helper()
	encoded, err := c.Encode(value)
	require.NoError(t, err)
	require.Equal(t, data, string(encoded))
	decoded, err := c.Decode([]byte(data))
	require.NoError(t, err)
	require.Equal(t, value, decoded)
}

// TestCodecs_RoundTrip checks that a codec does not change a value, that its format does not change, and that
// the JSON codec rejects invalid data.
func TestCodecs_RoundTrip(t *testing.T) {
	requireRoundTrip(t, JSON[[]string](), []string{"one"}, `["one"]`)
	requireRoundTrip(t, String(), "one", "one")
	requireRoundTrip(t, Bytes(), []byte("one"), "one")
	_, err := JSON[int]().Decode([]byte("one"))
	require.Error(t, err)
}
