package shard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// exploredState is a state that a group can have: the plan, the records of the members, and the Spec.
type exploredState struct {
	plan    Plan
	members map[string]record
	spec    Spec
	zxid    int64
}

// key returns a text that is equal for states that differ only in versions and in times without an effect.
func (x exploredState) key() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(x.members)) {
		fmt.Fprintf(&b, "%s:%s ", id, x.members[id].State)
	}
	fmt.Fprintf(&b, "| %v %v %v %d | %v |", x.spec.Drained, x.spec.Paused, x.spec.PauseRebalancing, x.spec.MaxMoves, x.plan.Owners)
	for _, m := range x.plan.Members {
		fmt.Fprintf(&b, " %s:%t", m.ID, m.Away.IsZero())
	}
	for _, m := range x.plan.Moves {
		fmt.Fprintf(&b, " %s:%s:%s:%s:%t", m.Shard, m.From, m.To, m.Reason, x.members[m.To].Confirmed >= m.Version)
	}
	return b.String()
}

// withRecord returns the state after the record of a member was replaced, or removed if r is nil.
func (x exploredState) withRecord(id string, r *record) exploredState {
	x.members = maps.Clone(x.members)
	if delete(x.members, id); r != nil {
		x.members[id] = *r
	}
	return x
}

// withSpec returns the state after the Spec was changed.
func (x exploredState) withSpec(change func(*Spec)) exploredState {
	x.zxid++
	change(&x.spec)
	return x
}

// nextStates returns the state after each possible event, by a description of the event. In these states no leader
// has planned since the event.
func (x exploredState) nextStates(ids []string) map[string]exploredState {
	all := map[string]exploredState{}
	for _, id := range ids {
		r, present := x.members[id]
		all[id+" joins"] = x.withRecord(id, &record{Weight: 1, Confirmed: r.Confirmed})
		if present {
			all[id+" crashes"] = x.withRecord(id, nil)
			all[id+" leaves"] = x.withRecord(id, &record{Weight: 1, State: leaving, Confirmed: r.Confirmed})
			all[id+" restarts"] = x.withRecord(id, &record{Weight: 1, State: restarting, Confirmed: r.Confirmed})
			r.Confirmed = x.plan.Version
			all[id+" confirms"] = x.withRecord(id, &r)
		}
	}
	toggle := func(names []string, name string) []string {
		if len(names) > 0 {
			return nil
		}
		return []string{name}
	}
	all["drain or not"] = x.withSpec(func(s *Spec) { s.Drained = toggle(s.Drained, ids[0]) })
	all["pause a shard or not"] = x.withSpec(func(s *Spec) { s.Paused = toggle(s.Paused, s.Shards[0]) })
	all["pause rebalancing or not"] = x.withSpec(func(s *Spec) { s.PauseRebalancing = !s.PauseRebalancing })
	all["limit moves or not"] = x.withSpec(func(s *Spec) { s.MaxMoves = 1 - s.MaxMoves })
	over := x
	over.plan.Members = slices.Clone(x.plan.Members)
	for i, m := range over.plan.Members {
		if !m.Away.IsZero() {
			over.plan.Members[i].Away = someTime
		}
	}
	all["the delay of restarts is over"] = over
	return all
}

// computeNext replaces the plan by the next plan. It returns a description of the rule that the next plan
// violates, or "" if it violates none.
func (x *exploredState) computeNext() string {
	was := x.plan
	x.plan = nextPlan(was, x.members, x.spec, x.zxid, someTime)
	return checkPlan(was, x.plan, x.members, x.spec)
}

// checkSettled lets all members confirm plans until the plan does not change any more. It returns a description of
// the rule that a plan violates, or "" if they violate none.
func (x exploredState) checkSettled() string {
	x.spec.PauseRebalancing = false
	x.zxid++
	for range 20 {
		version := x.plan.Version
		x.members = maps.Clone(x.members)
		for id, r := range x.members {
			r.Confirmed = version
			x.members[id] = r
		}
		if wrong := x.computeNext(); wrong != "" {
			return wrong
		}
		if x.plan.Version == version {
			return checkBalance(x.plan, x.members, x.spec)
		}
	}
	return "the plan does not settle"
}

// TestNext_ExploredSequencesSatisfyRules checks that nextPlan violates no rule after any sequence of events:
// members join, leave, crash, restart and confirm, and the Spec changes. With -shard.full it explores all states
// of two members and two shards, and longer sequences of more members and shards.
func TestNext_ExploredSequencesSatisfyRules(t *testing.T) {
	explore(t, 2, 2, 6)
	if *fullTest {
		explore(t, 2, 2, 1<<30)
		explore(t, 3, 2, 8)
		explore(t, 3, 3, 6)
	}
}

// explore explores all states that a group can reach by at most depth events.
func explore(t *testing.T, shards, members, depth int) {
	ids := numberedNames("m", members)
	first := exploredState{members: map[string]record{}, spec: Spec{Shards: numberedNames("s", shards), RestartDelay: time.Minute}, zxid: 1}
	seen := map[string]bool{first.key(): true}
	level, plans := []exploredState{first}, 0
	for range depth {
		var following []exploredState
		for _, x := range level {
			for event, y := range x.nextStates(ids) {
				plans++
				wrong := y.computeNext()
				if key := y.key(); wrong == "" && !seen[key] {
					seen[key] = true
					following = append(following, y)
					wrong = y.checkSettled()
				}
				require.Empty(t, wrong, "%s\nbefore: %+v\nafter: %+v", event, x, y)
			}
		}
		if level = following; len(level) == 0 {
			break
		}
	}
	t.Logf("%d shards, %d members: %d states, %d plans, %d states left", shards, members, len(seen), plans, len(level))
}
