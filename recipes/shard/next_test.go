package shard

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var fullTest = flag.Bool("shard.full", false, "test all sizes, and large ones, which takes minutes")

var someTime = time.UnixMilli(1_800_000_000_000)

// numberedNames returns the names of n shards or members, sorted.
func numberedNames(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s%05d", prefix, i))
	}
	return all
}

// model simulates a group without servers: it contains only the plan, the records of the members and
// the Spec.
type model struct {
	plan    Plan
	members map[string]record
	spec    Spec
	zxid    int64
	now     time.Time
	moves   int // the number of changes of owners so far
}

func newModel(shards, members int) *model {
	m := &model{members: map[string]record{}, spec: Spec{Shards: numberedNames("s", shards)}, zxid: 1, now: someTime}
	for _, id := range numberedNames("m", members) {
		m.members[id] = record{Weight: 1}
	}
	return m
}

// step computes the next plan, lets all members confirm it, and reports whether it differs from the previous
// plan.
func (m *model) step() bool {
	was := m.plan
	m.plan = nextPlan(was, m.members, m.spec, m.zxid, m.now)
	for shard, owner := range m.plan.Owners {
		if before := was.Owners[shard]; before != "" && before != owner {
			m.moves++
		}
	}
	for id, r := range m.members {
		r.Confirmed = m.plan.Version
		m.members[id] = r
	}
	return m.plan.Version != was.Version
}

// settlePlan computes plans until the plan does not change.
func (m *model) settlePlan(t testing.TB) {
	for i := 0; m.step(); i++ {
		require.Less(t, i, 3*len(m.spec.Shards)+10, "the plan does not settle")
	}
}

// loads returns the number of shards of each member.
func (p Plan) loads() map[string]int {
	loads := map[string]int{}
	for _, owner := range p.Owners {
		loads[owner]++
	}
	return loads
}

// requireEven requires that all shards are assigned, and that the numbers of shards of two members differ by
// at most one.
func (m *model) requireEven(t testing.TB) {
	require.Len(t, m.plan.Owners, len(m.spec.Shards))
	loads := m.plan.loads()
	least, most := len(m.spec.Shards)/len(m.members), (len(m.spec.Shards)+len(m.members)-1)/len(m.members)
	for id := range m.members {
		require.GreaterOrEqual(t, loads[id], least, "%d shards, %d members", len(m.spec.Shards), len(m.members))
		require.LessOrEqual(t, loads[id], most, "%d shards, %d members", len(m.spec.Shards), len(m.members))
	}
}

// TestNext_SharesDifferByOne checks that the numbers of shards of two members differ by at most one, and that no
// more shards move than necessary when a member joins or leaves. With -shard.full it tests 100 times as many
// sizes.
func TestNext_SharesDifferByOne(t *testing.T) {
	sizes := []int{4, 5, 7, 16, 63, 64, 100, 257}
	step := 13
	if *fullTest {
		sizes, step = nil, 1
		for k := 4; k <= 10_000; k += 1 + k/8 {
			sizes = append(sizes, k)
		}
		sizes = append(sizes, 10_000)
	}
	combinations, moves, least := 0, 0, 0
	for _, shards := range sizes {
		for members := 2; members <= 100; members += step {
			m := newModel(shards, members)
			m.settlePlan(t)
			m.requireEven(t)

			m.moves = 0
			m.members["joins"] = record{Weight: 1}
			m.settlePlan(t)
			m.requireEven(t)
			require.Equal(t, shards/(members+1), m.moves, "%d shards, %d members and one that joins", shards, members)
			moves, least = moves+m.moves, least+shards/(members+1)

			m.moves = 0
			id := numberedNames("m", members)[members/2]
			held := m.plan.loads()[id]
			delete(m.members, id)
			m.settlePlan(t)
			m.requireEven(t)
			require.Equal(t, held, m.moves, "%d shards, %d members, of which one has left", shards, members)
			moves, least = moves+m.moves, least+held
			combinations++
		}
	}
	t.Logf("%d combinations, %d moves, the least possible are %d", combinations, moves, least)
}

// TestNext_LogsTimeForLargePlan checks that nextPlan divides 10,000 shards evenly among 100 members, and logs how
// long it takes.
func TestNext_LogsTimeForLargePlan(t *testing.T) {
	m := newModel(10_000, 99)
	m.settlePlan(t)
	begin := time.Now()
	m.step()
	same := time.Since(begin)
	m.members["joins"] = record{Weight: 1}
	begin = time.Now()
	m.step()
	t.Logf("without a change %v, with a new member %v", same, time.Since(begin))
	m.requireEven(t)
}

// TestNext_SharesFollowWeights checks that a member does not have more shards than its share by weight, rounded up.
func TestNext_SharesFollowWeights(t *testing.T) {
	m := newModel(100, 0)
	m.members = map[string]record{"a": {Weight: 1}, "b": {Weight: 2}, "c": {Weight: 4}}
	m.settlePlan(t)
	require.Equal(t, map[string]int{"a": 14, "b": 29, "c": 57}, m.plan.loads())
	m.members["c"] = record{Weight: 1}
	m.settlePlan(t)
	require.Equal(t, map[string]int{"a": 25, "b": 50, "c": 25}, m.plan.loads())
}

// TestNext_ZonesShareEvenly checks that the members of a zone together do not have more than their share. Without the
// rule for zones, all shares that are rounded up can be in one zone.
func TestNext_ZonesShareEvenly(t *testing.T) {
	m := newModel(0, 0)
	for i, id := range numberedNames("m", 12) {
		m.members[id] = record{Weight: 1, Zone: fmt.Sprint("zone", i/4)}
	}
	for shards := range 200 {
		m.spec.Shards, m.zxid = numberedNames("s", shards), int64(shards)
		m.settlePlan(t)
		m.requireEven(t)
		zones := map[string]int{}
		for id, n := range m.plan.loads() {
			zones[m.members[id].Zone] += n
		}
		for zone, n := range zones {
			require.InDelta(t, float64(shards)/3, n, 0.99, "%s of %d shards", zone, shards)
		}
	}
}

// TestNext_MovesNoShardDuringRollingRestart checks that no shard moves if each member returns within the delay
// that the Spec grants to restarts.
func TestNext_MovesNoShardDuringRollingRestart(t *testing.T) {
	m := newModel(1000, 20)
	m.spec.RestartDelay = time.Minute
	m.settlePlan(t)
	before := maps.Clone(m.plan.Owners)
	for _, id := range numberedNames("m", 20) {
		m.members[id] = record{Weight: 1, State: restarting}
		m.settlePlan(t)
		delete(m.members, id)
		m.settlePlan(t)
		m.now = m.now.Add(50 * time.Second)
		m.settlePlan(t)
		require.Equal(t, before, m.plan.Owners)
		m.members[id] = record{Weight: 1}
		m.settlePlan(t)
	}
	require.Equal(t, before, m.plan.Owners)
	require.Empty(t, m.plan.Moves)
}

// TestNext_MovesShardsAfterRestartDelay checks that the shards of a member that does not return from a restart get
// another owner after the delay, and that a leader with a wrong clock does not postpone this.
func TestNext_MovesShardsAfterRestartDelay(t *testing.T) {
	m := newModel(10, 2)
	m.spec.RestartDelay = time.Minute
	m.settlePlan(t)
	m.members["m00001"] = record{Weight: 1, State: restarting}
	m.now = m.now.Add(time.Hour) // let the clock of this leader be an hour fast
	m.settlePlan(t)
	delete(m.members, "m00001")
	m.now = m.now.Add(-time.Hour)
	m.settlePlan(t)
	require.Equal(t, 5, m.plan.loads()["m00001"], "it is away")
	m.now = m.now.Add(time.Minute)
	m.step()
	require.Equal(t, 10, m.plan.loads()["m00000"])
	for _, move := range m.plan.Moves {
		require.Equal(t, Move{move.Shard, "m00001", "m00000", Lost, m.plan.Version}, move)
	}
}

// TestNext_MaxMovesLimitsMoves checks that no more moves are in progress than MaxMoves permits, and that moves do not
// wait when earlier moves are confirmed.
func TestNext_MaxMovesLimitsMoves(t *testing.T) {
	m := newModel(100, 1)
	m.settlePlan(t)
	m.spec.MaxMoves, m.zxid = 3, 2
	m.members["m00001"] = record{Weight: 1}
	for round := 0; m.plan.loads()["m00001"] < 50; round++ {
		m.plan = nextPlan(m.plan, m.members, m.spec, m.zxid, m.now)
		require.Equal(t, min(3*(round+1), 50), m.plan.loads()["m00001"])
		again := nextPlan(m.plan, m.members, m.spec, m.zxid, m.now)
		require.Equal(t, m.plan.Version, again.Version, "nothing is confirmed")
		require.LessOrEqual(t, len(m.plan.Moves), 3)
		m.members["m00001"] = record{Weight: 1, Confirmed: m.plan.Version}
	}
	m.settlePlan(t)
	require.Empty(t, m.plan.Moves)

	// Remove a member: its shards must be assigned immediately, whatever MaxMoves is.
	delete(m.members, "m00000")
	m.step()
	require.Equal(t, 100, m.plan.loads()["m00001"])
}

// TestNext_AppliesSettingsOfSpec checks that each setting of the Spec has exactly the documented effect.
func TestNext_AppliesSettingsOfSpec(t *testing.T) {
	m := newModel(12, 3)
	change := func(f func(*Spec)) {
		f(&m.spec)
		m.zxid++
		m.step()
	}
	m.step()
	require.Equal(t, Added, m.plan.Moves[0].Reason)
	m.settlePlan(t)
	require.Empty(t, m.plan.Moves)

	change(func(s *Spec) { s.Drained = []string{"m00002"} })
	require.Equal(t, map[string]int{"m00000": 6, "m00001": 6}, m.plan.loads())
	require.Len(t, m.plan.Moves, 4)
	require.Equal(t, Drained, m.plan.Moves[0].Reason)

	change(func(s *Spec) { s.Drained, s.PauseRebalancing = nil, true })
	require.Equal(t, map[string]int{"m00000": 6, "m00001": 6}, m.plan.loads())
	delete(m.members, "m00001")
	m.step()
	require.Equal(t, 6, m.plan.loads()["m00002"], "shards without an owner are assigned")
	m.members["m00001"] = record{Weight: 1}
	m.settlePlan(t)
	require.Zero(t, m.plan.loads()["m00001"])

	m.spec.Pins = map[string]string{"s00000": "m00001", "s00001": "m00001", "s00002": "absent"}
	change(func(s *Spec) { s.PauseRebalancing = false })
	require.Equal(t, map[string]int{"m00000": 4, "m00001": 4, "m00002": 4}, m.plan.loads())
	require.Equal(t, "m00001", m.plan.Owners["s00000"])
	require.Equal(t, "m00001", m.plan.Owners["s00001"])

	was := m.plan.Owners["s00005"]
	change(func(s *Spec) { s.Paused = []string{"s00005"} })
	require.NotContains(t, m.plan.Owners, "s00005")
	require.Contains(t, m.plan.Moves, Move{"s00005", was, "", Paused, m.plan.Version})

	change(func(s *Spec) { s.Paused, s.Shards = nil, s.Shards[1:] })
	require.Len(t, m.plan.Owners, 11)
	require.Contains(t, m.plan.Moves, Move{"s00000", "m00001", "", Removed, m.plan.Version})

	m.members["m00000"] = record{Weight: 1, State: leaving}
	m.step()
	require.Zero(t, m.plan.loads()["m00000"])
	require.Equal(t, Left, m.plan.Moves[0].Reason)
}

// TestNext_PriorityShardsLeaveFirst checks that shards with greater priority leave a drained member first,
// and are the last shards that move for the balance.
func TestNext_PriorityShardsLeaveFirst(t *testing.T) {
	m := newModel(10, 1)
	m.spec.MaxMoves, m.spec.Priorities = 1, map[string]int{"s00007": 1, "s00009": 1}
	m.settlePlan(t)
	m.members["m00001"] = record{Weight: 1}
	m.settlePlan(t)
	require.Equal(t, "m00000", m.plan.Owners["s00007"])
	require.Equal(t, "m00000", m.plan.Owners["s00009"])
	m.spec.Drained, m.zxid = []string{"m00000"}, 2
	m.step()
	require.Equal(t, "s00007", m.plan.Moves[0].Shard)
}

// checkPlan returns a description of the rule that the plan p, which nextPlan has returned for old,
// violates, or "".
func checkPlan(old, p Plan, members map[string]record, spec Spec) string {
	again := nextPlan(old, members, spec, p.SpecZxid, someTime)
	switch {
	case !again.equal(p):
		return "the same arguments give different plans"
	case p.Version < old.Version:
		return "the version decreases"
	case p.Version == old.Version && !p.equal(old):
		return "the plan changes, but its version does not"
	}
	data, err := encodePlan(p)
	if err != nil {
		return err.Error()
	}
	if decoded, err := decodePlan(data); err != nil || !decoded.equal(p) {
		return fmt.Sprintf("the encoded plan is decoded as %+v, %v", decoded, err)
	}
	receives := func(id string) bool {
		m, present := members[id]
		return present && m.State == working && !slices.Contains(spec.Drained, id)
	}
	anyReceives := slices.ContainsFunc(slices.Collect(maps.Keys(members)), receives)
	chosen := 0
	for shard, owner := range p.Owners {
		planned, known := p.member(owner)
		was := old.Owners[shard]
		switch {
		case !slices.Contains(spec.Shards, shard) || slices.Contains(spec.Paused, shard):
			return fmt.Sprintf("%s is assigned although it is paused or removed", shard)
		case !known:
			return fmt.Sprintf("%s is assigned to %s, which is not a member", shard, owner)
		case !receives(owner) && owner != was:
			return fmt.Sprintf("%s is assigned to %s, which must not receive shards", shard, owner)
		case !receives(owner) && planned.Away.IsZero() && members[owner].State != working:
			return fmt.Sprintf("%s remains with %s, which is gone", shard, owner)
		}
		if _, present := members[was]; present && was != owner && members[was].State == working {
			chosen++
		}
	}
	if spec.PauseRebalancing && chosen > 0 {
		return "shards are moved although rebalancing is paused"
	}
	if spec.MaxMoves > 0 && chosen > spec.MaxMoves {
		return fmt.Sprintf("%d shards move by choice, more than MaxMoves permits", chosen)
	}
	inProgress := func(p Plan) (n int) {
		for _, m := range p.Moves {
			to, present := members[m.To]
			if m.Reason.byChoice() && present && p.Owners[m.Shard] == m.To && to.Confirmed < m.Version {
				n++
			}
		}
		return n
	}
	if n := inProgress(p); spec.MaxMoves > 0 && n > max(spec.MaxMoves, inProgress(old)) {
		return fmt.Sprintf("%d moves are in progress, more than MaxMoves permits", n)
	}
	for _, shard := range spec.Shards {
		if p.Owners[shard] == "" && anyReceives && !slices.Contains(spec.Paused, shard) {
			return fmt.Sprintf("%s has no owner although a member can receive shards", shard)
		}
	}
	for _, m := range p.Moves {
		if p.Owners[m.Shard] != m.To {
			return fmt.Sprintf("%+v, but the owner is %q", m, p.Owners[m.Shard])
		}
	}
	return ""
}

// checkBalance returns a description of how the numbers of shards in p, a plan that does not change any more,
// violate the rules, or "".
func checkBalance(p Plan, members map[string]record, spec Spec) string {
	loads, weights, total, pinned := p.loads(), 0, 0, map[string]int{}
	heavy := false
	for id, m := range members {
		if m.State == working && !slices.Contains(spec.Drained, id) {
			weights += min(max(m.Weight, 1), maxWeight)
			total += loads[id]
		}
	}
	for shard, id := range spec.Pins {
		if p.Owners[shard] != "" {
			pinned[id]++
		}
	}
	for id, m := range members {
		if m.State != working {
			continue
		}
		if slices.Contains(spec.Drained, id) {
			if loads[id] > 0 && weights > 0 {
				return fmt.Sprintf("%s is drained and has %d shards", id, loads[id])
			}
			continue
		}
		w := min(max(m.Weight, 1), maxWeight)
		heavy = heavy || pinned[id] > total*w/weights
		if most := (total*w + weights - 1) / weights; loads[id] > max(most, pinned[id]) {
			return fmt.Sprintf("%s has %d of %d shards", id, loads[id], total)
		}
		if loads[id] < total*w/weights && !heavy && len(pinned) == 0 {
			return fmt.Sprintf("%s has only %d of %d shards", id, loads[id], total)
		}
	}
	for shard, id := range spec.Pins {
		m, present := members[id]
		owner, _ := p.member(p.Owners[shard])
		if owner.ID != "" && owner.Away.IsZero() && present && m.State == working && !slices.Contains(spec.Drained, id) && owner.ID != id {
			return fmt.Sprintf("%s is not owned by the member to which it is pinned", shard)
		}
	}
	return ""
}

// runRandomPlans changes members and the Spec at random, and checks every plan. It returns a description of the
// first violation of a rule, or "".
func runRandomPlans(r *rand.Rand, steps int) string {
	var plan Plan
	members, spec, zxid := map[string]record{}, Spec{}, int64(0)
	ids, shards := numberedNames("m", 8), numberedNames("s", 30)
	some := func(all []string, n int) []string {
		return slices.Sorted(maps.Keys(setOf(slices.Collect(func(yield func(string) bool) {
			for range r.IntN(n) {
				if !yield(all[r.IntN(len(all))]) {
					return
				}
			}
		}))))
	}
	check := func() string {
		was := plan
		plan = nextPlan(was, members, spec, zxid, someTime)
		if wrong := checkPlan(was, plan, members, spec); wrong != "" {
			before, _ := json.Marshal(was)
			return fmt.Sprintf("%s\nbefore: %s\nmembers: %+v\nspec: %+v\nplan: %+v", wrong, before, members, spec, plan)
		}
		return ""
	}
	for range steps {
		for range 1 + r.IntN(3) {
			id := ids[r.IntN(len(ids))]
			switch r.IntN(5) {
			case 0:
				delete(members, id)
			case 1, 2:
				members[id] = record{Weight: 1 + r.IntN(3)*r.IntN(4), Zone: []string{"", "x", "y"}[r.IntN(3)], Confirmed: members[id].Confirmed}
			case 3:
				members[id] = record{Weight: 1, State: []memberState{leaving, restarting}[r.IntN(2)]}
			case 4:
				m := members[id]
				m.Confirmed = plan.Version
				if m.Weight > 0 {
					members[id] = m
				}
			}
		}
		if r.IntN(3) == 0 {
			zxid++
			spec = Spec{
				Shards: some(shards, 60), Paused: some(shards, 4), Drained: some(ids, 3), PauseRebalancing: r.IntN(5) == 0,
				MaxMoves: r.IntN(4), RestartDelay: time.Duration(r.IntN(2)) * time.Minute,
				Pins: map[string]string{}, Priorities: map[string]int{},
			}
			for _, shard := range some(shards, 8) {
				spec.Pins[shard], spec.Priorities[shard] = ids[r.IntN(len(ids))], r.IntN(3)
			}
		}
		if wrong := check(); wrong != "" {
			return wrong
		}
		if r.IntN(3) > 0 || spec.PauseRebalancing {
			continue
		}
		for i, version := 0, int64(-1); version != plan.Version; i++ {
			for id, m := range members {
				m.Confirmed = plan.Version
				members[id] = m
			}
			version = plan.Version
			if wrong := check(); wrong != "" {
				return wrong
			}
			if i > 100 {
				return "the plan does not settle"
			}
		}
		if wrong := checkBalance(plan, members, spec); wrong != "" {
			return fmt.Sprintf("%s\nmembers: %+v\nspec: %+v\nplan: %+v", wrong, members, spec, plan)
		}
	}
	return ""
}

// TestNext_RandomChangesSatisfyRules checks that a plan violates no rule after random changes.
func TestNext_RandomChangesSatisfyRules(t *testing.T) {
	seeds := uint64(30)
	if *fullTest {
		seeds = 10_000
	}
	for seed := range seeds {
		require.Empty(t, runRandomPlans(rand.New(rand.NewPCG(seed, 1)), 60), "seed %d", seed)
	}
}

// FuzzNext changes members and the Spec as the input determines, and checks every plan.
func FuzzNext(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		if wrong := runRandomPlans(rand.New(rand.NewPCG(a, b)), 20); wrong != "" {
			t.Fatal(wrong)
		}
	})
}

// FuzzDecodePlan checks that decodePlan does not panic for data of another program, and that a decoded plan
// is the same after it is encoded and decoded again.
func FuzzDecodePlan(f *testing.F) {
	m := newModel(5, 2)
	m.step()
	text, err := encodePlan(m.plan)
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte(`{"version":1,"shards":["a"],"owners":[1]}`))
	f.Add([]byte(`{"version":1,"moves":[{"shards":[0]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := decodePlan(data)
		if err != nil {
			return
		}
		if len(p.Moves) > len(data) || len(p.Owners) > len(data) {
			t.Fatal("the decoded plan has more shards than its text has bytes")
		}
		_ = nextPlan(p, map[string]record{"a": {Weight: 1}}, Spec{Shards: []string{"s"}}, 1, someTime)
	})
}
