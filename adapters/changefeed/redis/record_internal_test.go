package redis

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecodeRecord decodes arbitrary fields. Decoding must not result in a record without a version or an
// epoch, or with a negative number.
func FuzzDecodeRecord(f *testing.F) {
	const record = "v\ne\nl\ns\nn\n1\n2\n1000000000\n0\n1700000000000000"
	f.Add(record)
	f.Add(strings.Replace(record, "\n1000000000\n", "\n-1\n", 1))
	f.Add(strings.Replace(record, "\ne\n", "\n\n", 1))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		var values []any
		for field := range strings.SplitSeq(text, "\n") {
			values = append(values, field)
		}
		r, ok := decodeRecord(values)
		require.True(t, ok || text != record)
		if ok {
			require.NotEmpty(t, r.Version)
			require.NotEmpty(t, r.Epoch)
			require.False(t, r.TTL < 0)
		}
	})
}
