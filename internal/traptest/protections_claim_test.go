package traptest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// What keeps a candidate from claiming to lead when its predecessor goes and its
// own znode has gone too.

const gap = time.Millisecond // between the packets of a narrow line

// deleteBoth has somebody delete the line from the back, in one transaction, as
// ends of an election do.
func (h *harness) deleteTogether(second, first *candidate) {
	_, err := h.operator.Multi(
		&zk.DeleteRequest{Path: second.ID(), Version: -1},
		&zk.DeleteRequest{Path: first.ID(), Version: -1},
	)
	assert.NoError(h, err)
}

// After a reconnect the server tells of the predecessor's end before it tells of
// the own one's. What the second in line knew of its place is void then.
func TestProtection_PlaceIsVoidAfterReconnect(t *testing.T) {
	withServers(t, 2, func(h *harness) {
		conn, pause := h.connectSlowly()
		leader, second := h.join(h.connect()), h.join(conn)
		second.requireFollows(leader)
		h.advance(time.Second + 60*time.Millisecond) // the monitor does not look right now
		pause.set(gap)
		h.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			h.deleteTogether(second, leader)
			return zktest.Pass(q)
		})
		h.srv.DropConnections(conn.SessionID())
		h.advance(100 * gap)
		require.ErrorIs(h, second.requireOver(), leaderelection.ErrCandidateDeleted)
		require.NotContains(h, second.roles(), leaderelection.Leader)
		require.Equal(h, []string{leader.ID(), second.ID()}, h.deletionsDelivered(conn.SessionID()), "or else this test shows nothing")
	})
}

// toldOf are the paths of whose ends a session was told, in order.
func (h *harness) deletionsDelivered(session int64) (paths []string) {
	for _, e := range h.requests(zktest.OpNotification, session) {
		if e.Event == zk.EventNodeDeleted {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// The end of a session takes all its candidates, the first in line first.
func TestProtection_PredecessorOfTheSameSession(t *testing.T) {
	for name, end := range map[string]struct {
		do  func(h *harness, conn *zk.Conn)
		gap time.Duration
	}{
		"expires":       {func(h *harness, conn *zk.Conn) { assert.NoError(h, h.srv.ExpireSession(conn.SessionID())) }, gap},
		"expires, slow": {func(h *harness, conn *zk.Conn) { assert.NoError(h, h.srv.ExpireSession(conn.SessionID())) }, 20 * gap},
		"is closed":     {func(_ *harness, conn *zk.Conn) { conn.Close() }, gap},
	} {
		t.Run(name, func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				conn, pause := h.connectSlowly()
				session := conn.SessionID()
				leader, second := h.join(conn), h.join(conn)
				third := h.join(h.connect())
				h.advance(time.Second)
				pause.set(end.gap)
				end.do(h, conn)
				h.advance(timeout)
				require.Error(h, leader.requireOver())
				require.Error(h, second.requireOver())
				require.NotContains(h, second.roles(), leaderelection.Leader)
				third.requireLeads()
				require.Equal(h, leader.ID(), h.deletionsDelivered(session)[0], "or else this test shows nothing")
			})
		})
	}
}

// Where the own end and the predecessor's are both known, the own one counts,
// whichever is looked at first.
func TestProtection_OwnEndBeforeAClaim(t *testing.T) {
	for range 20 { // which one is looked at first is decided by lot
		withServers(t, 1, func(h *harness) {
			hold, release := h.hold()
			var led atomic.Bool
			leader := h.join(h.connect())
			second := h.join(h.connect(), onStatus(func(s leaderelection.Status) {
				hold(nil)
				led.Store(led.Load() || s.Role == leaderelection.Leader)
			}))
			require.NotEmpty(h, second.ID())
			require.Empty(h, second.received(), "it is not held")
			h.deleteTogether(second, leader)
			h.advance(0)
			release()
			h.advance(20 * time.Millisecond)
			require.ErrorIs(h, second.requireOver(), leaderelection.ErrCandidateDeleted)
			require.False(h, led.Load(), "it claimed to lead")
		})
	}
}
