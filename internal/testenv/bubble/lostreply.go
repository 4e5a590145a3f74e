package bubble

import (
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// Fault is a fault of one request, after which a client does not know whether the request was applied.
type Fault struct {
	Name    string
	Applied bool // the request is applied
	Silent  bool // the connection is not closed
	// Set makes the server cause the fault at the first request that matches.
	Set func(s *zktest.Server, m zktest.Match) *zktest.Hook
}

// ConnectionLost are the faults of the connection.
var ConnectionLost = []Fault{
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

// SessionMoved are replies that the session has moved to another server. The connection is not
// affected.
var SessionMoved = []Fault{
	{"session moved before the request", false, false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.Before(m, zktest.Fail(zk.ErrSessionMoved))
	}},
	{"session moved before the reply", true, false, func(s *zktest.Server, m zktest.Match) *zktest.Hook {
		return s.After(m, zktest.Fail(zk.ErrSessionMoved))
	}},
}

// LostReplies are the faults of both lists.
var LostReplies = slices.Concat(ConnectionLost, SessionMoved)
