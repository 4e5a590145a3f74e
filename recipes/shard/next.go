package shard

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// record is the data of a member's znode, by which the member informs the other members.
type record struct {
	Zone   string      `json:"zone,omitempty"`
	Weight int         `json:"weight"`
	State  memberState `json:"state,omitempty"`
	// Confirmed is the version of the last plan that the member has confirmed. A member confirms a plan when it
	// holds all shards that the plan gives to it.
	Confirmed int64 `json:"confirmed,omitempty"`
}

// memberState says whether a member works, leaves for good, or leaves for a restart.
type memberState string

const (
	working    memberState = ""
	leaving    memberState = "leaving"
	restarting memberState = "restarting"
)

// maxWeight limits the weights of members, so that products do not overflow.
const maxWeight = 1_000_000

// planning is one computation of the next plan.
type planning struct {
	old     Plan
	members map[string]record // the members that are present, by ID
	spec    Spec
	now     time.Time
	plan    Plan // the next plan, which is being computed

	shares   map[string]*share // the members that may receive shards, by ID
	order    []*share          // the values of shares, sorted by ID
	keeps    map[string]bool   // members that keep their shards but receive none: those that are drained or away
	away     map[string]bool   // members that are away
	ordinary map[string]int    // the number of the shards of each member that are not pinned to the member
}

// nextPlan returns the plan that follows old, or old if nothing changes. members are the records of the present
// members, by ID, and spec is the Spec, which the transaction specZxid has changed last. Equal arguments lead to
// equal plans.
func nextPlan(old Plan, members map[string]record, spec Spec, specZxid int64, now time.Time) Plan {
	p := planning{
		old: old, members: members, spec: spec, now: now,
		shares: map[string]*share{}, keeps: map[string]bool{}, away: map[string]bool{}, ordinary: map[string]int{},
		plan: Plan{Version: old.Version, SpecZxid: specZxid, Owners: make(map[string]string, len(spec.Shards))},
	}
	for _, m := range members {
		p.plan.Version = max(p.plan.Version, m.Confirmed)
	}
	p.plan.Version++
	p.listMembers()
	free := p.keepShards()
	p.setQuotas(free)
	p.assign(free)
	if !spec.PauseRebalancing {
		p.rebalance()
	}
	p.keepMoves()
	if p.plan.equal(old) {
		return old
	}
	return p.plan
}

// listMembers determines which members may receive shards, and which members keep theirs.
func (p *planning) listMembers() {
	for id, m := range p.members {
		weight := min(max(m.Weight, 1), maxWeight)
		planned := PlannedMember{ID: id, Zone: m.Zone, Weight: weight}
		switch {
		case m.State == working && slices.Contains(p.spec.Drained, id):
			p.keeps[id] = true
		case m.State == working:
			p.shares[id] = &share{name: id, zone: m.Zone, weight: weight}
			p.order = append(p.order, p.shares[id])
		case m.State == restarting:
			planned.Away = p.awayUntil(id)
			p.away[id] = !planned.Away.IsZero()
			p.keeps[id] = p.away[id]
		}
		p.plan.Members = append(p.plan.Members, planned)
	}
	for _, m := range p.old.Members {
		if _, present := p.members[m.ID]; present || m.Away.IsZero() {
			continue
		}
		if m.Away = p.awayUntil(m.ID); !m.Away.IsZero() {
			p.keeps[m.ID], p.away[m.ID] = true, true
			p.plan.Members = append(p.plan.Members, m)
		}
	}
	slices.SortFunc(p.plan.Members, func(a, b PlannedMember) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(p.order, func(a, b *share) int { return strings.Compare(a.name, b.name) })
}

// awayUntil returns the time until which a restarting member keeps its shards, or the zero time if the member does
// not keep them. The result is at most RestartDelay from now, so that a wrong clock of an earlier leader cannot
// extend the time.
func (p *planning) awayUntil(id string) time.Time {
	until := p.now.Add(p.spec.RestartDelay).Truncate(time.Millisecond)
	if m, known := p.old.member(id); known && !m.Away.IsZero() && m.Away.Before(until) {
		until = m.Away
	}
	if !until.After(p.now) {
		return time.Time{}
	}
	return until
}

// keepShards copies each shard whose owner keeps it to the new plan. It returns the other shards, sorted by
// descending priority.
func (p *planning) keepShards() (free []string) {
	paused := setOf(p.spec.Paused)
	for _, shard := range p.spec.Shards {
		owner := p.old.Owners[shard]
		switch {
		case paused[shard]:
			if owner != "" {
				p.addMove(shard, owner, "", Paused)
			}
		case owner != "" && (p.shares[owner] != nil || p.keeps[owner]):
			p.plan.Owners[shard] = owner
			if p.pinnedMember(shard) == nil {
				p.ordinary[owner]++
			}
		default:
			free = append(free, shard)
		}
	}
	if p.plan.SpecZxid != p.old.SpecZxid {
		for shard, owner := range p.old.Owners {
			if _, known := slices.BinarySearch(p.spec.Shards, shard); !known {
				p.addMove(shard, owner, "", Removed)
			}
		}
	}
	slices.SortStableFunc(free, func(a, b string) int { return cmp.Compare(p.spec.Priorities[b], p.spec.Priorities[a]) })
	return free
}

// pinnedMember returns the member to which a shard is pinned. It returns nil if the shard is not pinned, or if the
// member may not receive shards.
func (p *planning) pinnedMember(shard string) *share {
	if len(p.spec.Pins) == 0 {
		return nil
	}
	return p.shares[p.spec.Pins[shard]]
}

// setQuotas sets the quotas of all members that may receive shards. free are the shards without an owner.
func (p *planning) setQuotas(free []string) {
	if len(p.order) == 0 {
		return
	}
	total := len(free)
	for shard, owner := range p.plan.Owners {
		if p.away[owner] {
			continue
		}
		total++
		if pin := p.pinnedMember(shard); pin != nil {
			pin.pinned++
		}
	}
	for _, shard := range free {
		if pin := p.pinnedMember(shard); pin != nil {
			pin.pinned++
		}
	}
	for _, s := range p.order {
		s.held = p.ordinary[s.name] + s.pinned
	}
	setQuotas(p.order, total)
}

// assign gives the shards that have no owner to members.
func (p *planning) assign(free []string) {
	for _, shard := range free {
		to := p.pinnedMember(shard)
		if to == nil {
			to = p.neediestMember()
		}
		from := p.old.Owners[shard]
		switch {
		case to != nil:
			p.giveShard(shard, from, to, p.lossReason(from))
		case from != "":
			p.addMove(shard, from, "", p.lossReason(from))
		}
	}
}

// lossReason returns the reason why the member from does not own its shards any more.
func (p *planning) lossReason(from string) Reason {
	m, present := p.members[from]
	switch {
	case from == "":
		return Added
	case present && m.State != working:
		return Left
	}
	return Lost
}

// neediestMember returns the member that lacks the most shards to its quota, or nil if no member may receive shards.
func (p *planning) neediestMember() (to *share) {
	most := 0
	for _, s := range p.order {
		if lacks := s.quota - s.pinned - p.ordinary[s.name]; to == nil || lacks > most {
			to, most = s, lacks
		}
	}
	return to
}

// giveShard moves a shard from one member to another, which becomes its owner.
func (p *planning) giveShard(shard, from string, to *share, reason Reason) {
	if p.pinnedMember(shard) == nil {
		if p.plan.Owners[shard] != "" {
			p.ordinary[from]--
		}
		p.ordinary[to.name]++
	}
	p.plan.Owners[shard] = to.name
	p.addMove(shard, from, to.name, reason)
}

func (p *planning) addMove(shard, from, to string, reason Reason) {
	p.plan.Moves = append(p.plan.Moves, Move{Shard: shard, From: from, To: to, Reason: reason, Version: p.plan.Version})
}

// rebalance moves shards to members that lack them, from members that could keep them.
func (p *planning) rebalance() {
	if len(p.order) == 0 {
		return
	}
	budget := p.spec.MaxMoves
	if budget == 0 {
		budget = len(p.spec.Shards)
	}
	for _, m := range p.old.Moves {
		if m.Reason.byChoice() && p.inProgress(m) {
			budget--
		}
	}
	// owned contains, for each member, the shards that may be moved; the shards that move first are at the end.
	owned := map[string][]string{}
	var pinned []string
	for _, shard := range p.spec.Shards {
		owner := p.plan.Owners[shard]
		if owner == "" || p.away[owner] {
			continue
		}
		if pin := p.pinnedMember(shard); pin == nil {
			owned[owner] = append(owned[owner], shard)
		} else if pin.name != owner {
			pinned = append(pinned, shard)
		}
	}
	urgent := func(a, b string) int { return cmp.Compare(p.spec.Priorities[b], p.spec.Priorities[a]) }
	slices.SortStableFunc(pinned, urgent)
	for _, shard := range pinned[:min(len(pinned), max(budget, 0))] {
		p.giveShard(shard, p.plan.Owners[shard], p.pinnedMember(shard), Pinned)
		budget--
	}
	for _, id := range slices.Sorted(maps.Keys(owned)) {
		slices.SortStableFunc(owned[id], urgent)
		if p.shares[id] != nil {
			continue
		}
		for _, shard := range owned[id][:min(len(owned[id]), max(budget, 0))] {
			p.giveShard(shard, id, p.neediestMember(), Drained)
			budget--
		}
	}
	for ; budget > 0; budget-- {
		from, most := "", 0
		for _, s := range p.order {
			if excess := p.ordinary[s.name] + s.pinned - s.quota; excess > most {
				from, most = s.name, excess
			}
		}
		to := p.neediestMember()
		shards := owned[from]
		if len(shards) == 0 || to.quota <= to.pinned+p.ordinary[to.name] {
			return
		}
		shard := shards[len(shards)-1]
		owned[from] = shards[:len(shards)-1]
		reason := Balanced
		if _, known := p.old.member(to.name); !known {
			reason = Joined
		}
		p.giveShard(shard, from, to, reason)
	}
}

// inProgress reports whether the move m is not complete, because the new owner has not confirmed the
// plan of the move yet.
func (p *planning) inProgress(m Move) bool {
	to, present := p.members[m.To]
	return present && p.plan.Owners[m.Shard] == m.To && to.Confirmed < m.Version
}

// keepMoves adds the earlier moves that are still in progress to the plan. If nothing else changes, finished
// moves also remain until all are finished, because every member reads each new plan.
func (p *planning) keepMoves() {
	fresh := p.plan.Moves
	moved := map[string]bool{}
	for _, m := range fresh {
		moved[m.Shard] = true
	}
	var unconfirmed []Move
	given := false // reports that a member has to confirm a move
	for _, m := range p.old.Moves {
		given = given || m.To != ""
		if !moved[m.Shard] && p.inProgress(m) {
			unconfirmed = append(unconfirmed, m)
		}
	}
	p.plan.Moves = p.old.Moves
	if len(fresh) == 0 && (len(unconfirmed) > 0 || !given) && p.plan.equal(p.old) {
		return
	}
	p.plan.Moves = append(fresh, unconfirmed...)
	sortMoves(p.plan.Moves)
}

func sortMoves(moves []Move) {
	slices.SortFunc(moves, func(a, b Move) int { return strings.Compare(a.Shard, b.Shard) })
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}
