package lock

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// loss is a way in which the outcome of a request becomes unknown.
type loss struct {
	name    string
	applied bool // though nobody is told
	silent  bool // nor is the connection closed
	set     func(s *zktest.Server, m zktest.Match) *zktest.Hook
}

var losses = []loss{
	{"cut before the request", false, false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.Before(m, zktest.Cut)
	}},
	{"cut before the reply", true, false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.After(m, zktest.Cut)
	}},
	{"silence instead of the reply", true, true, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.After(m, func(q *zktest.Request) zktest.Verdict {
			q.Server.Blackhole(zktest.BothWays, q.Session)
			return zktest.Pass(q)
		})
	}},
}

// answers are those that leave the outcome open though the connection is well.
var answers = []loss{
	{"session moved before the request", false, false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.Before(m, zktest.Fail(zk.ErrSessionMoved))
	}},
	{"session moved before the reply", true, false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.After(m, zktest.Fail(zk.ErrSessionMoved))
	}},
}

// each runs f in a world of its own for each loss.
func each(t *testing.T, of []loss, servers int, f func(w *world, l loss)) {
	for _, l := range of {
		t.Run(l.name, func(t *testing.T) {
			play(t, servers, func(w *world) { f(w, l) })
		})
	}
}
