package contender

import "testing"

func TestExplore(t *testing.T) {
	for _, s := range []scenario{
		{name: "two", members: 2, conns: 2, symmetric: true, budget: [faults]uint8{leaves: 2}},
		{name: "three", members: 3, conns: 3, symmetric: true, budget: [faults]uint8{leaves: 3}},
	} {
		s.timers, s.limit = defaultTimers, 3_000_000
		s.config = Config{Dir: "/q", Tombstone: tombstone, QueueCzxid: 1, Lookahead: true}
		t.Run(s.name, s.run)
	}
}
