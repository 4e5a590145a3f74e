package shard

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// TestPlan_LargestPlanFitsIntoZnode checks that a plan in which 10,000 shards with long names all move fits into a
// znode.
func TestPlan_LargestPlanFitsIntoZnode(t *testing.T) {
	m := newModel(10_000, 0)
	for i := range m.spec.Shards {
		m.spec.Shards[i] += strings.Repeat("x", 64)
	}
	require.Len(t, m.spec.Shards[0], 70)
	require.NoError(t, m.spec.normalize())
	for _, id := range numberedNames("member-of-the-group-", 100) {
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

// TestNormalize_SortsShardsAndRejectsInvalidSpec checks that normalize sorts the shards and removes duplicates,
// and rejects an invalid Spec.
func TestNormalize_SortsShardsAndRejectsInvalidSpec(t *testing.T) {
	s := Spec{Shards: []string{"b", "a", "b"}}
	require.NoError(t, s.normalize())
	require.Equal(t, []string{"a", "b"}, s.Shards)
	for name, s := range map[string]Spec{
		"empty name": {Shards: []string{"a", ""}},
		"shard":      {Shards: []string{"\xff"}},
		"pin":        {Pins: map[string]string{"a": "\xff"}},
		"moves":      {MaxMoves: -1},
		"delay":      {RestartDelay: -1},
		"too large":  {Shards: []string{strings.Repeat("<", 200<<10)}},
		"too many":   {Shards: numberedNames("s", 60_000)},
	} {
		require.ErrorIs(t, s.normalize(), recipes.ErrInvalid, name)
	}
}

// TestFitPlan_KeepsMovesByChoice checks that fitPlan omits moves that are not by choice first, and keeps moves by
// choice, which MaxMoves limits, if the plan is then small enough.
func TestFitPlan_KeepsMovesByChoice(t *testing.T) {
	p := Plan{Owners: map[string]string{}, Moves: []Move{{Shard: "s", From: "a", To: "b", Reason: Drained}}}
	for _, name := range numberedNames(strings.Repeat("x", 60), 20_000) {
		p.Moves = append(p.Moves, Move{Shard: name, From: "a", Reason: Removed})
	}
	fit, data, err := p.fitPlan()
	require.NoError(t, err)
	require.Less(t, len(data), maxPlanSize)
	require.Equal(t, p.Moves[:1], fit.Moves)
	require.Len(t, p.Moves, 20_001)
}

// TestDecodePlan_RejectsLastVersion checks that decodePlan rejects a plan whose version is so great that no later
// version is possible.
func TestDecodePlan_RejectsLastVersion(t *testing.T) {
	for _, text := range []string{`{"version":-1}`, `{"version":1152921504606846976}`} {
		_, err := decodePlan([]byte(text))
		require.ErrorIs(t, err, errPlan)
	}
}
