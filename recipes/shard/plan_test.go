package shard

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// TestPlan_Size fails if a plan of 10,000 shards with long names, of which all move, does not fit into a znode.
func TestPlan_Size(t *testing.T) {
	m := newModel(10_000, 0)
	for i := range m.spec.Shards {
		m.spec.Shards[i] += strings.Repeat("x", 64)
	}
	require.Len(t, m.spec.Shards[0], 70)
	require.NoError(t, m.spec.normalize())
	for _, id := range names("member-of-the-group-", 100) {
		m.members[id] = record{Weight: 1, Zone: "zone"}
	}
	m.plan.Version = 1 << 40
	m.step()
	require.Len(t, m.plan.Moves, 10_000)
	data, err := encodePlan(m.plan)
	require.NoError(t, err)
	t.Logf("%d bytes", len(data))
	require.Less(t, len(data), 1<<20-4096)
	decoded, err := decodePlan(data)
	require.NoError(t, err)
	require.True(t, decoded.equal(m.plan))
}

func TestSpec_Normalize(t *testing.T) {
	s := Spec{Shards: []string{"b", "a", "b"}}
	require.NoError(t, s.normalize())
	require.Equal(t, []string{"a", "b"}, s.Shards)
	for name, s := range map[string]Spec{
		"empty name": {Shards: []string{"a", ""}},
		"moves":      {MaxMoves: -1},
		"delay":      {RestartDelay: -1},
		"too large":  {Shards: []string{strings.Repeat("<", 200<<10)}},
		"too many":   {Shards: names("s", 60_000)},
	} {
		require.ErrorIs(t, s.normalize(), recipes.ErrInvalid, name)
	}
}
