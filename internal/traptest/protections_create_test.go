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
	play(t, 2, func(w *world) {
		conn := w.connect()
		session := conn.SessionID()
		var created string
		var between *candidate
		other := w.connect()
		w.srv.After(zktest.Match{Op: zktest.OpCreate, Session: session, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			created = q.Created
			return zktest.Cut(q)
		})
		// Before the candidate is back somebody else has joined.
		w.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: session, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			between = w.start(other)
			time.Sleep(time.Millisecond)
			return zktest.Pass(q)
		})
		c := w.start(conn)
		w.pass(100 * time.Millisecond)
		require.Equal(w, created, c.ID())
		c.leads()
		between.follows(c)
		require.Len(w, w.sent(zktest.OpCreate, session), 1)
		require.Len(w, w.children(), 2)
	})
}

// A znode with the name of a create that was not answered is used only if it is
// of this session: one of another goes with that (CURATOR-498).
func TestProtection_OnlyZnodesOfTheSessionAreAdopted(t *testing.T) {
	for name, keepOwn := range map[string]bool{"beside the own": true, "in its place": false} {
		t.Run(name, func(t *testing.T) {
			play(t, 2, func(w *world) {
				conn := w.connect()
				var impostor string
				w.srv.After(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					var err error
					if !keepOwn {
						assert.NoError(w, w.operator.Delete(q.Created, -1))
					}
					// Ahead of the own one, so that it is met first.
					assert.NoError(w, w.srv.SetSequence(node, 0))
					impostor, err = w.operator.Create(q.Path, nil, zk.FlagEphemeral|zk.FlagSequence, anybody)
					assert.NoError(w, err)
					return zktest.Cut(q)
				})
				require.NoError(w, w.srv.SetSequence(node, 7))
				c := w.start(conn)
				w.pass(100 * time.Millisecond)
				c.leads()
				require.NotEqual(w, impostor, c.ID())
				w.stands(line(c)...)
				_, stat, err := w.operator.Exists(c.ID())
				require.NoError(w, err)
				require.Equal(w, conn.SessionID(), stat.EphemeralOwner)
			})
		})
	}
}
