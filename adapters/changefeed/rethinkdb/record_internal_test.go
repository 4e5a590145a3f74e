package rethinkdb

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// FuzzDecode decodes arbitrary documents. Decoding must not result in a record without a version or an
// epoch, or with other numbers than the document.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"format":"changefeed/1","epoch":"e","leader":"","session":"","nominee":"","term":1,"seq":2,"ttl_ns":3,"ended":false,"version":"v","time":{"epoch_time":1.5}}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		r, err := decode(document)
		if err != nil {
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			return
		}
		require.NotEmpty(t, r.Version)
		require.NotEmpty(t, r.Epoch)
		require.NoError(t, checkNumbers(r))
	})
}
