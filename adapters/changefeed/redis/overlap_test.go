//go:build unix

package redis_test

// Leaders seen from outside.

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/overlap"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// TestOverlap: leaders that are cut off one after the other have stopped when the next
// begins.
func TestOverlap(t *testing.T) {
	t.Parallel()
	server := shared.Get(t)
	key, operator := newKey(), newClient(t, server.Addr(), nil)
	var networks [overlap.Members]*dbserver.Proxy
	for i := range networks {
		networks[i] = newProxy(t, server.Addr())
	}
	overlap.Run(t, overlap.World{
		Store: func(i int) changefeed.Store { return newStore(t, newClient(t, networks[i].Addr(), nil), key) },
		Cut:   func(i int) { networks[i].Cut() },
		Heal:  func(i int) { networks[i].Heal() },
		Append: func(row []byte) error {
			return operator.RPush(context.Background(), key+" leaders", row).Err()
		},
		Rows: func() (all [][]byte) {
			texts, err := operator.LRange(bounded(t), key+" leaders", 0, -1).Result()
			require.NoError(t, err)
			for _, text := range texts {
				all = append(all, []byte(text))
			}
			return all
		},
	})
}
