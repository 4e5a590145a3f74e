package traptest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// C7: a create that was applied and whose answer got lost left a znode of a
// living session at the head of the line, that nobody knew of.
func TestC07_OrphanedCandidate(t *testing.T) {
	for name, lost := range map[string]struct{ requests, answers int }{
		"a request":               {requests: 1},
		"an answer":               {answers: 1},
		"two requests":            {requests: 2},
		"a request and an answer": {requests: 1, answers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, place := range []string{"as the first", "as the second"} {
				t.Run(place, func(t *testing.T) {
					withServers(t, 1, func(h *harness) {
						var leader *candidate
						if place == "as the second" {
							leader = h.join(h.connect())
						}
						conn := h.connect()
						session := conn.SessionID()
						match := zktest.Match{Op: zktest.OpCreate, Session: session, Nth: 1}
						for n := range lost.requests {
							match.Nth = n + 1
							h.srv.Before(match, zktest.Cut)
						}
						match.Nth = 1 // of those that arrive
						for range lost.answers {
							h.srv.After(match, zktest.Cut)
						}

						c := h.joinAsync(conn)
						h.advance(3500 * time.Millisecond) // the client dials once a second
						require.Equal(h, session, conn.SessionID(), "the session's end is no solution")
						require.Len(h, h.requests(zktest.OpCreate, session), lost.requests+max(lost.answers, 1), "none that is not needed")
						if leader == nil {
							c.requireLeads()
							h.requireChildren(names(c)...)
						} else {
							c.requireFollows(leader)
							h.requireChildren(names(leader, c)...)
						}
						require.Len(h, c.received(), 1)

						behind := h.join(h.connect())
						behind.requireFollows(c)
						require.NoError(h, c.Resign())
						h.advance(0)
						if leader == nil {
							behind.requireLeads()
						} else {
							behind.requireFollows(leader)
						}
					})
				})
			}
		})
	}
}
