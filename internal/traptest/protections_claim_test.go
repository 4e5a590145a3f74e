package traptest

import (
	"context"
	"log/slog"
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
func (w *world) deleteBoth(second, first *candidate) {
	_, err := w.operator.Multi(
		&zk.DeleteRequest{Path: second.ID(), Version: -1},
		&zk.DeleteRequest{Path: first.ID(), Version: -1},
	)
	assert.NoError(w, err)
}

// After a reconnect the server tells of the predecessor's end before it tells of
// the own one's. What the second in line knew of its place is void then.
func TestProtection_PlaceIsVoidAfterReconnect(t *testing.T) {
	play(t, 2, func(w *world) {
		conn, slow := w.connectNarrow()
		leader, second := w.enlist(w.connect()), w.enlist(conn)
		second.follows(leader)
		w.pass(time.Second + 60*time.Millisecond) // the monitor does not look right now
		slow.slow(gap)
		w.srv.Before(zktest.Match{Op: zktest.OpConnect, Session: conn.SessionID(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.deleteBoth(second, leader)
			return zktest.Pass(q)
		})
		w.srv.DropConnections(conn.SessionID())
		w.pass(100 * gap)
		require.ErrorIs(w, second.over(), leaderelection.ErrCandidateDeleted)
		require.NotContains(w, second.roles(), leaderelection.Leader)
		require.Equal(w, []string{leader.ID(), second.ID()}, w.toldOf(conn.SessionID()), "or else this test shows nothing")
	})
}

// toldOf are the paths of whose ends a session was told, in order.
func (w *world) toldOf(session int64) (paths []string) {
	for _, e := range w.sent(zktest.OpNotification, session) {
		if e.Event == zk.EventNodeDeleted {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// The end of a session takes all its candidates, the first in line first.
func TestProtection_PredecessorOfTheSameSession(t *testing.T) {
	for name, end := range map[string]struct {
		do  func(w *world, conn *zk.Conn)
		gap time.Duration
	}{
		"expires":       {func(w *world, conn *zk.Conn) { assert.NoError(w, w.srv.ExpireSession(conn.SessionID())) }, gap},
		"expires, slow": {func(w *world, conn *zk.Conn) { assert.NoError(w, w.srv.ExpireSession(conn.SessionID())) }, 20 * gap},
		"is closed":     {func(_ *world, conn *zk.Conn) { conn.Close() }, gap},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(w *world) {
				conn, slow := w.connectNarrow()
				session := conn.SessionID()
				leader, second := w.enlist(conn), w.enlist(conn)
				third := w.enlist(w.connect())
				w.pass(time.Second)
				slow.slow(end.gap)
				end.do(w, conn)
				w.pass(timeout)
				require.Error(w, leader.over())
				require.Error(w, second.over())
				require.NotContains(w, second.roles(), leaderelection.Leader)
				third.leads()
				require.Equal(w, leader.ID(), w.toldOf(session)[0], "or else this test shows nothing")
			})
		})
	}
}

// gate is a log handler that keeps whoever logs a status until it is opened, and
// notes whether one was that of a leader: a reader may never see it, if it is
// taken back at once. It stands for a candidate that is not given the processor.
type gate struct {
	slog.Handler
	hold zktest.HookFunc
	led  *atomic.Bool
}

func (g gate) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if s, ok := a.Value.Any().(leaderelection.Status); ok {
			g.hold(nil)
			if s.Role == leaderelection.Leader {
				g.led.Store(true)
			}
		}
		return true
	})
	return nil
}

func (g gate) WithAttrs([]slog.Attr) slog.Handler       { return g }
func (g gate) Enabled(context.Context, slog.Level) bool { return true }

// Where the own end and the predecessor's are both known, the own one counts,
// whichever is looked at first.
func TestProtection_OwnEndBeforeAClaim(t *testing.T) {
	for range 20 { // which one is looked at first is decided by lot
		play(t, 1, func(w *world) {
			hold, release := w.hold()
			var led atomic.Bool
			leader := w.enlist(w.connect())
			second := w.enlist(w.connect(), leaderelection.WithLogger(slog.New(gate{slog.DiscardHandler, hold, &led})))
			require.NotEmpty(w, second.ID())
			require.Empty(w, second.all(), "it is not held")
			w.deleteBoth(second, leader)
			w.pass(0)
			release()
			w.pass(20 * time.Millisecond)
			require.ErrorIs(w, second.over(), leaderelection.ErrCandidateDeleted)
			require.False(w, led.Load(), "it claimed to lead")
		})
	}
}
