package traptest

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// The direct follower is disconnected while the election is marked as over, by somebody
// who may not write to the leader's znode. It looks at the election after the reconnect
// and does not lead.
func TestMarkWhileTheFollowerIsDisconnected(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader := h.join(h.connect(), leaderelection.WithACL(zk.WorldACL(zk.PermRead)))
		next := h.join(h.connect())
		next.requireFollows(leader)
		h.advance(timeout)
		h.srv.Refuse(true)
		h.srv.DropConnections(next.conn.SessionID())
		h.advance(shortTime)
		h.srv.Refuse(false)
		h.create(node + "/DONE")
		h.advance(timeout / 2)
		h.remove(leader.ID())
		h.advance(timeout)
		require.ErrorIs(h, next.requireOver(), leaderelection.ErrElectionOver)
		next.requireNeverLed()
	})
}

// Done is closed before the status Suspended is published.
func TestDoneIsClosedBeforeSuspended(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		var leadership atomic.Pointer[leaderelection.Leadership]
		var suspended, early atomic.Int64
		conn := h.connect()
		c := h.join(conn, onStatus(func(s leaderelection.Status) {
			switch s.Role {
			case leaderelection.Leader:
				leadership.Store(s.Leadership)
			case leaderelection.Suspended:
				suspended.Add(1)
				if leadership.Load().Context().Err() == nil {
					early.Add(1)
				}
			}
		}))
		c.requireLeads()
		h.srv.Blackhole(zktest.BothWays, conn.SessionID())
		h.advance(timeout * 3 / 4)
		require.EqualValues(h, 1, suspended.Load())
		require.Zero(h, early.Load())
	})
}

// A create without an answer is searched for, too, if the session ends while the candidate
// leaves: it may be carried out later.
func TestSearchGoesOnAfterTheSession(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		lost := h.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: anyCandidate, Nth: 1}, zktest.Cut)
		c := h.join(conn)
		h.requireMet(lost)
		h.reconnect()
		c.requireLeads()
		first := h.srv.Log().Filter(func(e zktest.Entry) bool { return e.Fate == zktest.CutBefore })[0].Path
		late := first + "0000000007"

		h.srv.Refuse(true)
		h.srv.DropConnections(conn.SessionID())
		h.advance(shortTime)
		require.ErrorIs(h, c.Resign(), leaderelection.ErrUnconfirmed)
		require.NoError(h, h.srv.ExpireSession(conn.SessionID()))
		searched := h.srv.Before(zktest.Match{Op: zktest.OpSync, Path: node, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			_, err := h.operator.Create(late, nil, zk.FlagEphemeral, openACL)
			if err != nil {
				h.Error(err)
			}
			return zktest.Pass(q)
		})
		h.reconnect()
		h.advance(timeout)
		h.requireMet(searched)
		require.NoError(h, c.Resign())
		h.requireIDs()
	})
}

// A candidate whose znode was deleted does not list the election.
func TestEndedCandidatesDoNotList(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		var all []*candidate
		for range 20 {
			all = append(all, h.join(h.connect()))
		}
		h.srv.ResetLog()
		hold, release := h.hold()
		h.srv.Before(zktest.Match{Op: zktest.OpGetChildren2, Session: all[1].conn.SessionID()}, hold)
		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		release()
		h.advance(timeout)
		for _, c := range all {
			require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
		}
		// The tombstone wakes the direct follower of the first candidate, which would list the
		// election and leave, and so would the candidates behind it, one after another. Here its
		// request arrives late. The others, which are deleted together with their predecessors, do
		// not list.
		together := 0
		for _, c := range all[2:] {
			log := h.srv.Log().Session(c.conn.SessionID())
			deletions := log.Filter(func(e zktest.Entry) bool {
				return e.Op == zktest.OpNotification && e.Event == zk.EventNodeDeleted
			})
			if n := len(deletions); n > 1 && deletions[0].Zxid == deletions[n-1].Zxid {
				together++
				require.Zero(h, log.Count(zktest.OpGetChildren2), "%s", log)
			}
		}
		require.GreaterOrEqual(h, together, len(all)/2)
	})
}

// A candidate behind one whose znode it may not read ends with an error that names it.
func TestUnreadablePredecessor(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		require.NoError(h, conn.AddAuth("digest", []byte("u:p")))
		leader := h.join(conn, leaderelection.WithACL(zk.AuthACL(zk.PermAll)))
		leader.requireLeads()
		next := h.join(h.connect())
		h.advance(shortTime)
		err := next.requireOver()
		require.ErrorIs(h, err, leaderelection.ErrPermission)
		require.ErrorContains(h, err, leader.ID())
	})
}

// The error of a transaction names the operation that has failed.
func TestMultiNamesTheOperation(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		c := h.join(h.connect())
		l := c.requireLeads()
		create := &zk.CreateRequest{Path: "/new", Acl: openACL}
		for text, op := range map[string]any{
			"(index 1), set data of /missing":      &zk.SetDataRequest{Path: "/missing", Version: -1},
			"(index 1), delete /missing":           &zk.DeleteRequest{Path: "/missing", Version: -1},
			"(index 1), check version of /missing": &zk.CheckVersionRequest{Path: "/missing", Version: -1},
			"(index 1), create /missing/child":     &zk.CreateRequest{Path: "/missing/child", Acl: openACL},
		} {
			for _, multi := range []func(...any) ([]zk.MultiResponse, error){c.Multi, l.Multi} {
				_, err := multi(create, op, create)
				require.ErrorIs(h, err, zk.ErrNoNode)
				require.ErrorContains(h, err, text)
			}
		}
	})
}

// Multi of a leadership serves that one alone, and Multi of the candidate any.
func TestMultiOfOneLeadership(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		c := h.join(conn, leaderelection.WithRejoin())
		first := c.requireLeads()
		_, err := first.Multi()
		require.NoError(h, err)
		h.expire(conn)
		h.advance(2 * timeout)
		second := c.requireLeads()
		require.NotEqual(h, first.Token(), second.Token())
		_, err = first.Multi()
		require.ErrorIs(h, err, leaderelection.ErrNotLeader)
		for _, multi := range []func(...any) ([]zk.MultiResponse, error){c.Multi, second.Multi} {
			_, err = multi()
			require.NoError(h, err)
		}

		other, end := leaderelection.NewLeadership(1, func() time.Time { return time.Time{} })
		defer end(nil)
		_, err = other.Multi()
		require.ErrorIs(h, err, errors.ErrUnsupported)
	})
}
