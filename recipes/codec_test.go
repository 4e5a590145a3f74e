package recipes_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
)

func requireRoundTrip[T any](t *testing.T, c recipes.Codec[T], value T, data string) {
	t.Helper()
	encoded, err := c.Encode(value)
	require.NoError(t, err)
	require.Equal(t, data, string(encoded))
	decoded, err := c.Decode([]byte(data))
	require.NoError(t, err)
	require.Equal(t, value, decoded)
}

// TestCodecs_PreserveValues checks that decoding an encoded value returns the same value, that the format of each
// codec does not change, and that the JSON codec rejects invalid data.
func TestCodecs_PreserveValues(t *testing.T) {
	requireRoundTrip(t, recipes.JSONCodec[[]string](), []string{"one"}, `["one"]`)
	requireRoundTrip(t, recipes.StringCodec(), "one", "one")
	requireRoundTrip(t, recipes.BytesCodec(), []byte("one"), "one")
	_, err := recipes.JSONCodec[int]().Decode([]byte("one"))
	require.Error(t, err)
}
