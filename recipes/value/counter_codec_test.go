package value

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// FuzzCodecs decodes arbitrary data in the format of each kind of counter. Data that is accepted must be the
// same number after it was encoded and decoded again.
func FuzzCodecs(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 7})
	f.Add([]byte{0, 0, 0, 7})
	f.Add([]byte("-12"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, c := range []recipes.Codec[int64]{int64Codec, int32Codec, decimalCodec, recipes.JSONCodec[int64]()} {
			n, err := c.Decode(data)
			if err != nil {
				continue
			}
			again, err := c.Encode(n)
			require.NoError(t, err)
			same, err := c.Decode(again)
			require.NoError(t, err)
			require.Equal(t, n, same)
		}
	})
}
