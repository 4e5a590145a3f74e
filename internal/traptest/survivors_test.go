package traptest

import (
	"context"
	"errors"
	"log/slog"
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
	play(t, 1, func(w *world) {
		leader := w.enlist(w.connect(), leaderelection.WithACL(zk.WorldACL(zk.PermRead)))
		next := w.enlist(w.connect())
		next.follows(leader)
		w.pass(timeout)
		w.srv.Refuse(true)
		w.srv.DropConnections(next.conn.SessionID())
		w.pass(moment)
		w.srv.Refuse(false)
		w.create(node + "/DONE")
		w.pass(timeout / 2)
		w.remove(leader.ID())
		w.pass(timeout)
		require.ErrorIs(w, next.over(), leaderelection.ErrElectionOver)
		next.never()
	})
}

// statuses is a log handler that is called with each status before it is published.
type statuses struct{ f func(leaderelection.Status) }

func (s statuses) Enabled(context.Context, slog.Level) bool { return true }
func (s statuses) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s statuses) WithGroup(string) slog.Handler            { return s }

func (s statuses) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if status, ok := a.Value.Any().(leaderelection.Status); ok {
			s.f(status)
		}
		return true
	})
	return nil
}

// Done is closed before the status Suspended is published.
func TestDoneIsClosedBeforeSuspended(t *testing.T) {
	play(t, 1, func(w *world) {
		var leadership atomic.Pointer[leaderelection.Leadership]
		var suspended, early atomic.Int64
		conn := w.connect()
		c := w.enlist(conn, leaderelection.WithLogger(slog.New(statuses{func(s leaderelection.Status) {
			switch s.Role {
			case leaderelection.Leader:
				leadership.Store(s.Leadership)
			case leaderelection.Suspended:
				suspended.Add(1)
				if leadership.Load().Context().Err() == nil {
					early.Add(1)
				}
			}
		}})))
		c.leads()
		w.srv.Blackhole(zktest.BothWays, conn.SessionID())
		w.pass(timeout * 3 / 4)
		require.EqualValues(w, 1, suspended.Load())
		require.Zero(w, early.Load())
	})
}

// A create without an answer is searched for, too, if the session ends while the candidate
// leaves: it may be carried out later.
func TestSearchGoesOnAfterTheSession(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		lost := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, zktest.Cut)
		c := w.enlist(conn)
		w.ran(lost)
		w.restore()
		c.leads()
		first := w.srv.Log().Filter(func(e zktest.Entry) bool { return e.Fate == zktest.CutBefore })[0].Path
		late := first + "0000000007"

		w.srv.Refuse(true)
		w.srv.DropConnections(conn.SessionID())
		w.pass(moment)
		require.ErrorIs(w, c.Resign(), leaderelection.ErrUnconfirmed)
		require.NoError(w, w.srv.ExpireSession(conn.SessionID()))
		searched := w.srv.Before(zktest.Match{Op: zktest.OpSync, Path: node, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			_, err := w.operator.Create(late, nil, zk.FlagEphemeral, anybody)
			if err != nil {
				w.Error(err)
			}
			return zktest.Pass(q)
		})
		w.restore()
		w.pass(timeout)
		w.ran(searched)
		require.NoError(w, c.Resign())
		w.line()
	})
}

// A candidate whose znode was deleted does not list the election.
func TestEndedCandidatesDoNotList(t *testing.T) {
	play(t, 1, func(w *world) {
		var all []*candidate
		for range 20 {
			all = append(all, w.enlist(w.connect()))
		}
		w.srv.ResetLog()
		wait, open := w.gate()
		w.srv.Before(zktest.Match{Op: zktest.OpGetChildren2, Session: all[1].conn.SessionID()}, func(q *zktest.Request) zktest.Verdict {
			<-wait
			return zktest.Pass(q)
		})
		require.NoError(w, leaderelection.DeleteElection(w.operator, node))
		open()
		w.pass(timeout)
		for _, c := range all {
			require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
		}
		// The tombstone wakes the direct follower of the first candidate, which would list the
		// election and leave, and so would the candidates behind it, one after another. Here its
		// request arrives late. The others, which are deleted together with their predecessors, do
		// not list.
		together := 0
		for _, c := range all[2:] {
			log := w.srv.Log().Session(c.conn.SessionID())
			deletions := log.Filter(func(e zktest.Entry) bool {
				return e.Op == zktest.OpNotification && e.Event == zk.EventNodeDeleted
			})
			if n := len(deletions); n > 1 && deletions[0].Zxid == deletions[n-1].Zxid {
				together++
				require.Zero(w, log.Count(zktest.OpGetChildren2), "%s", log)
			}
		}
		require.GreaterOrEqual(w, together, len(all)/2)
	})
}

// A candidate behind one whose znode it may not read ends with an error that names it.
func TestUnreadablePredecessor(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		require.NoError(w, conn.AddAuth("digest", []byte("u:p")))
		leader := w.enlist(conn, leaderelection.WithACL(zk.AuthACL(zk.PermAll)))
		leader.leads()
		next := w.enlist(w.connect())
		w.pass(moment)
		err := next.over()
		require.ErrorIs(w, err, leaderelection.ErrPermission)
		require.ErrorContains(w, err, leader.ID())
	})
}

// The error of a transaction names the operation that has failed.
func TestMultiNamesTheOperation(t *testing.T) {
	play(t, 1, func(w *world) {
		c := w.enlist(w.connect())
		l := c.leads()
		create := &zk.CreateRequest{Path: "/new", Acl: anybody}
		for text, op := range map[string]any{
			"(index 1), set data of /missing":      &zk.SetDataRequest{Path: "/missing", Version: -1},
			"(index 1), delete /missing":           &zk.DeleteRequest{Path: "/missing", Version: -1},
			"(index 1), check version of /missing": &zk.CheckVersionRequest{Path: "/missing", Version: -1},
			"(index 1), create /missing/child":     &zk.CreateRequest{Path: "/missing/child", Acl: anybody},
		} {
			for _, multi := range []func(...any) ([]zk.MultiResponse, error){c.Multi, l.Multi} {
				_, err := multi(create, op, create)
				require.ErrorIs(w, err, zk.ErrNoNode)
				require.ErrorContains(w, err, text)
			}
		}
	})
}

// Multi of a leadership serves that one alone, and Multi of the candidate any.
func TestMultiOfOneLeadership(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		c := w.enlist(conn, leaderelection.WithRejoin())
		first := c.leads()
		_, err := first.Multi()
		require.NoError(w, err)
		w.expire(conn)
		w.pass(2 * timeout)
		second := c.leads()
		require.NotEqual(w, first.Token(), second.Token())
		_, err = first.Multi()
		require.ErrorIs(w, err, leaderelection.ErrNotLeader)
		for _, multi := range []func(...any) ([]zk.MultiResponse, error){c.Multi, second.Multi} {
			_, err = multi()
			require.NoError(w, err)
		}

		other, end := leaderelection.NewLeadership(1, func() time.Time { return time.Time{} })
		defer end(nil)
		_, err = other.Multi()
		require.ErrorIs(w, err, errors.ErrUnsupported)
	})
}
