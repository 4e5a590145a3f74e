package traptest

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// A znode whose create was applied and not answered is taken as the own one. A
// second one would stand behind it, and behind whoever came in between.
func TestProtection_LostCreateIsAdopted(t *testing.T) {
	withServers(t, 2, func(h *harness) {
		conn := h.connect()
		session := conn.SessionID()
		var created string
		var between *candidate
		other := h.connect()
		h.srv.After(zktest.Match{Op: zktest.OpCreate, Session: session, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			created = q.Created
			return zktest.Cut(q)
		})
		// Before the candidate is back somebody else has joined.
		h.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: session, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			between = h.joinAsync(other)
			time.Sleep(time.Millisecond)
			return zktest.Pass(q)
		})
		c := h.joinAsync(conn)
		h.advance(100 * time.Millisecond)
		require.Equal(h, created, c.ID())
		c.requireLeads()
		between.requireFollows(c)
		require.Len(h, h.requests(zktest.OpCreate, session), 1)
		require.Len(h, h.childNames(), 2)
	})
}

// A znode with the name of a create that was not answered is used only if it is
// of this session: one of another goes with that (CURATOR-498).
func TestProtection_OnlyZnodesOfTheSessionAreAdopted(t *testing.T) {
	for name, keepOwn := range map[string]bool{"beside the own": true, "in its place": false} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 2, func(h *harness) {
				conn := h.connect()
				var impostor string
				h.srv.After(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					var err error
					if !keepOwn {
						assert.NoError(h, h.operator.Delete(q.Created, -1))
					}
					// Ahead of the own one, so that it is met first.
					assert.NoError(h, h.srv.SetSequence(node, 0))
					impostor, err = h.operator.Create(q.Path, nil, zk.FlagEphemeral|zk.FlagSequence, openACL)
					assert.NoError(h, err)
					return zktest.Cut(q)
				})
				require.NoError(h, h.srv.SetSequence(node, 7))
				c := h.joinAsync(conn)
				h.advance(100 * time.Millisecond)
				c.requireLeads()
				require.NotEqual(h, impostor, c.ID())
				h.requireChildren(names(c)...)
				_, stat, err := h.operator.Exists(c.ID())
				require.NoError(h, err)
				require.Equal(h, conn.SessionID(), stat.EphemeralOwner)
			})
		})
	}
}
