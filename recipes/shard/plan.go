package shard

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// Plan says which member should own which shard. The locks of the shards say who owns them: see
// [Group.Owner].
type Plan struct {
	// Version increases with every plan, as long as the plan is not deleted.
	Version int64
	// SpecZxid is the zxid of the change of the [Spec] from which the plan was computed.
	SpecZxid int64
	// Members are the members that the leader has seen, sorted by ID.
	Members []PlannedMember
	// Owners are the IDs of the owners, by shard. A shard that is paused, or for which there is no
	// member, is absent.
	Owners map[string]string
	// Moves are the changes of owners that the new owners have not confirmed when the plan was
	// made, sorted by shard.
	Moves []Move
}

// PlannedMember is a member in a [Plan].
type PlannedMember struct {
	ID     string
	Zone   string // the zone that the member has set by [WithZone]
	Weight int    // the share of shards that the member has set by [WithWeight]
	// Away is the time until which the member keeps its shards although it is restarting, by the clock of
	// the leader. It is zero for other members.
	Away time.Time
}

// Move is a change of the owner of a shard.
type Move struct {
	Shard string
	// From is the previous owner, or "" for a new shard.
	From string
	// To is the new owner, or "" if the shard has none.
	To     string
	Reason Reason
	// Version is the version of the plan that began the move.
	Version int64
}

// Reason is the reason of a [Move].
type Reason string

// The reasons why a shard moves.
const (
	Added     Reason = "added"     // the shard had no owner: it is new, or was paused
	Removed   Reason = "removed"   // the shard was removed from the Spec
	Paused    Reason = "paused"    // the shard is paused
	Lost      Reason = "lost"      // the owner has crashed, or has not returned from a restart
	Left      Reason = "left"      // the owner has left
	Restarted Reason = "restarted" // the owner is restarting; the shard does not move if it returns in time
	Drained   Reason = "drained"   // the owner is drained
	Pinned    Reason = "pinned"    // the shard is pinned to the new owner
	Joined    Reason = "joined"    // the new owner has joined and gets its share
	Balanced  Reason = "balanced"  // the old owner had too many shards
)

// byChoice reports whether a move for this reason takes a shard from a member that could keep it.
func (r Reason) byChoice() bool { return r == Drained || r == Pinned || r == Joined || r == Balanced }

// equal reports whether two plans are the same, apart from their versions.
func (p Plan) equal(o Plan) bool {
	return p.SpecZxid == o.SpecZxid && slices.EqualFunc(p.Members, o.Members, func(a, b PlannedMember) bool {
		return a.ID == b.ID && a.Zone == b.Zone && a.Weight == b.Weight && a.Away.Equal(b.Away)
	}) && maps.Equal(p.Owners, o.Owners) && slices.Equal(p.Moves, o.Moves)
}

// member returns the member with an ID.
func (p Plan) member(id string) (PlannedMember, bool) {
	for _, m := range p.Members {
		if m.ID == id {
			return m, true
		}
	}
	return PlannedMember{}, false
}

// maxPlanSize is the maximum size of an encoded plan. A server accepts requests of a megabyte, which also
// contain the path and the check of the leader's hold.
const maxPlanSize = 1<<20 - 16<<10

// fitPlan returns the plan and its encoding. If the plan is too large, fitPlan first omits the moves that only
// inform operators, and then all moves. It keeps the moves by choice as long as possible, because MaxMoves limits
// them.
func (p Plan) fitPlan() (Plan, []byte, error) {
	data, err := encodePlan(p)
	for _, keep := range []func(Move) bool{func(m Move) bool { return m.Reason.byChoice() }, func(Move) bool { return false }} {
		if err != nil || len(data) <= maxPlanSize {
			break
		}
		p.Moves = slices.DeleteFunc(slices.Clone(p.Moves), func(m Move) bool { return !keep(m) })
		data, err = encodePlan(p)
	}
	return p, data, err
}

// planText is the JSON of a plan in its znode. It refers to members and shards by their indexes, because the names
// of 10,000 shards are long.
type planText struct {
	Version  int64        `json:"version"`
	SpecZxid int64        `json:"specZxid,omitempty"`
	Members  []memberText `json:"members,omitempty"`
	Shards   []string     `json:"shards,omitempty"`
	Owners   []int        `json:"owners,omitempty"` // for each shard in Shards, the index of its owner in Members
	Moves    []moveText   `json:"moves,omitempty"`
}

type memberText struct {
	ID     string `json:"id"`
	Zone   string `json:"zone,omitempty"`
	Weight int    `json:"weight"`
	Away   int64  `json:"awayUntilMilliseconds,omitempty"` // the time in milliseconds since 1970
}

// moveText contains all moves that have the same owners, reason and version, and differ only in the
// shard.
type moveText struct {
	From    string   `json:"from,omitempty"`
	To      string   `json:"to,omitempty"`
	Reason  Reason   `json:"reason"`
	Version int64    `json:"version"`
	Shards  []int    `json:"shards,omitempty"` // indexes of shards in planText.Shards
	Names   []string `json:"names,omitempty"`  // names of shards that have no owner
}

var planCodec = recipes.Codec[Plan]{Encode: encodePlan, Decode: decodePlan}

func encodePlan(p Plan) ([]byte, error) {
	t := planText{Version: p.Version, SpecZxid: p.SpecZxid, Shards: slices.Sorted(maps.Keys(p.Owners))}
	index := make(map[string]int, len(p.Members))
	for i, m := range p.Members {
		text := memberText{ID: m.ID, Zone: m.Zone, Weight: m.Weight}
		if !m.Away.IsZero() {
			text.Away = m.Away.UnixMilli()
		}
		t.Members = append(t.Members, text)
		index[m.ID] = i
	}
	for _, shard := range t.Shards {
		t.Owners = append(t.Owners, index[p.Owners[shard]])
	}
	groups := map[Move]int{}
	for _, m := range p.Moves {
		group := m
		group.Shard = ""
		i, known := groups[group]
		if !known {
			i = len(t.Moves)
			groups[group] = i
			t.Moves = append(t.Moves, moveText{From: m.From, To: m.To, Reason: m.Reason, Version: m.Version})
		}
		if place, owned := slices.BinarySearch(t.Shards, m.Shard); owned {
			t.Moves[i].Shards = append(t.Moves[i].Shards, place)
		} else {
			t.Moves[i].Names = append(t.Moves[i].Names, m.Shard)
		}
	}
	return json.Marshal(t)
}

// isVersion reports whether n can be the version of a plan. The limit is so great that no number of changes can
// exceed it.
func isVersion(n int64) bool { return n >= 0 && n < 1<<60 }

// errPlan is returned if the data of the plan contains wrong indexes or a wrong version.
var errPlan = errors.New("shard: the data is not a plan")

func decodePlan(data []byte) (Plan, error) {
	var t planText
	if len(data) == 0 { // the znode exists, but no plan was written yet
		return Plan{}, nil
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return Plan{}, err
	}
	if len(t.Owners) != len(t.Shards) || !isVersion(t.Version) {
		return Plan{}, errPlan
	}
	p := Plan{Version: t.Version, SpecZxid: t.SpecZxid, Owners: make(map[string]string, len(t.Shards))}
	for _, m := range t.Members {
		member := PlannedMember{ID: m.ID, Zone: m.Zone, Weight: m.Weight}
		if m.Away != 0 {
			member.Away = time.UnixMilli(m.Away)
		}
		p.Members = append(p.Members, member)
	}
	for i, shard := range t.Shards {
		if t.Owners[i] < 0 || t.Owners[i] >= len(p.Members) {
			return Plan{}, errPlan
		}
		p.Owners[shard] = p.Members[t.Owners[i]].ID
	}
	for _, m := range t.Moves {
		names := m.Names
		for _, i := range m.Shards {
			if i < 0 || i >= len(t.Shards) {
				return Plan{}, errPlan
			}
			names = append(names, t.Shards[i])
		}
		for _, name := range names {
			p.Moves = append(p.Moves, Move{Shard: name, From: m.From, To: m.To, Reason: m.Reason, Version: m.Version})
		}
	}
	sortMoves(p.Moves)
	return p, nil
}
