package shard

import (
	"cmp"
	"maps"
	"slices"
)

// share describes how many shards a member, or all members of a zone together, have and should have.
type share struct {
	name   string
	zone   string // the zone of the member
	weight int
	held   int // the number of shards that the member has now, without shards that are pinned to other members
	pinned int // number of shards that are pinned to the member
	quota  int // number of shards that the member should have
}

// setQuotas sets the quotas of the members so that their sum is total. No quota is less than the number of pinned
// shards. If a member has more pinned shards than its share by weight, it gets only its pinned shards. Each other
// quota is the share by weight of what remains, rounded up or down, and so is the sum of the quotas of each zone.
// If there is only one zone, the members have as few shards above their quotas as these rules permit.
func setQuotas(members []*share, total int) {
	rest := slices.Clone(members)
	weights := 0
	for _, m := range rest {
		weights += m.weight
	}
	for {
		i := slices.IndexFunc(rest, func(m *share) bool { return m.pinned > total*m.weight/weights })
		if i < 0 {
			break
		}
		m := rest[i]
		m.quota = m.pinned
		total, weights = total-m.pinned, weights-m.weight
		rest = slices.Delete(rest, i, i+1)
	}
	zones, inZone := map[string]*share{}, map[string][]*share{}
	for _, m := range rest {
		z := zones[m.zone]
		if z == nil {
			z = &share{name: m.zone}
			zones[m.zone] = z
		}
		z.weight, z.held = z.weight+m.weight, z.held+m.held
		inZone[m.zone] = append(inZone[m.zone], m)
	}
	all := slices.Collect(maps.Values(zones))
	roundShares(all, total, total, weights)
	for _, z := range all {
		roundShares(inZone[z.name], z.quota, total, weights)
	}
}

// roundShares sets the quotas so that their sum is sum. Each quota is total*weight/weights, rounded up or
// down. It rounds up first for members that already have more shards than the lower number, because they then
// give away one shard less.
func roundShares(all []*share, sum, total, weights int) {
	for _, s := range all {
		s.quota = total * s.weight / weights
		sum -= s.quota
	}
	rank := func(s *share) int {
		if s.held > s.quota {
			return 0
		}
		return 1
	}
	fraction := func(s *share) int { return total * s.weight % weights }
	sorted := slices.SortedFunc(slices.Values(all), func(a, b *share) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(fraction(b), fraction(a)), cmp.Compare(a.name, b.name))
	})
	for _, s := range sorted {
		if sum > 0 && fraction(s) > 0 {
			s.quota++
			sum--
		}
	}
}
