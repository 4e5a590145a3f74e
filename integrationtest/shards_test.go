package integrationtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes/shard"
)

// TestShards_HaveOneOwnerWhileMemberIsCutOff checks that two members never own the same shard, and that the shards
// are divided evenly among the members that are connected while one member is cut off, and after it has returned.
func TestShards_HaveOneOwnerWhileMemberIsCutOff(t *testing.T) {
	t.Parallel()
	const shards, members = 40, 4
	operator := connect(t)
	path := fmt.Sprintf("/shards-%d", time.Now().UnixNano())
	group, err := shard.NewGroup(operator.Conn, path)
	require.NoError(t, err)
	_, err = group.Update(t.Context(), func(s *shard.Spec) error {
		for i := range shards {
			s.Shards = append(s.Shards, fmt.Sprint("shard ", i))
		}
		return nil
	})
	require.NoError(t, err)

	var mu sync.Mutex
	owners := map[string]*shard.Shard{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var clients []*client
	for i := range members {
		c := connectShort(t)
		clients = append(clients, c)
		g, err := shard.NewGroup(c.Conn, path)
		require.NoError(t, err)
		running.Go(func() {
			assert.NoError(t, g.Run(ctx, fmt.Sprint("member-", i), func(ctx context.Context, s *shard.Shard) error {
				mu.Lock()
				before := owners[s.Name()]
				if s.Err() == nil {
					assert.True(t, before == nil || before.Err() != nil && before.Token() < s.Token(), "%s has two owners", s.Name())
					owners[s.Name()] = s
				}
				mu.Unlock()
				<-ctx.Done()
				return nil
			}))
		})
	}
	requireEven := func(members int) {
		watched, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		for m := range group.Watch(watched) {
			require.NoError(t, m.Err)
			loads := map[string]int{}
			for _, owner := range m.Owners {
				loads[owner]++
			}
			even := len(m.Owners) == shards && len(m.Moves) == 0 && len(loads) == members
			for _, n := range loads {
				even = even && n >= shards/members && n <= (shards+members-1)/members
			}
			if even {
				return
			}
		}
		require.Fail(t, "the shards are not divided evenly among the members")
	}
	requireEven(members)
	clients[0].Network.Freeze()
	requireEven(members - 1)
	clients[0].Network.Restore()
	requireEven(members)
}
