package record

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Decode returns what Encode has encoded, for the name and the value in any data.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("name"))
	f.Add(Encode("name", "value"))
	f.Fuzz(func(t *testing.T, data []byte) {
		name, value := Decode(data)
		again, same := Decode(Encode(name, value))
		require.Equal(t, []string{name, value}, []string{again, same})
	})
}
