package mongodb

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// FuzzDecode decodes arbitrary documents. Decoding must not result in a record without a version or an
// epoch.
func FuzzDecode(f *testing.F) {
	document, err := bson.Marshal(record{Document: store.NewDocument[int64](changefeed.Record{Epoch: "e", Seq: 1, Term: 1, Version: "v"})})
	require.NoError(f, err)
	f.Add(document)
	f.Fuzz(func(t *testing.T, document []byte) {
		r, err := decode(document)
		if err != nil {
			require.ErrorIs(t, err, changefeed.ErrUnsuitable)
			return
		}
		require.NotEmpty(t, r.Version)
		require.NotEmpty(t, r.Epoch)
	})
}
