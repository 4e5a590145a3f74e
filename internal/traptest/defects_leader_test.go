package traptest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// C1: a leader that was cut off was told nothing, and another one was elected
// meanwhile. The old one's Done is closed at the end of its lease, which is over
// before its session is; the new one's status comes with the session's end.
func TestC01_TwoLeaders(t *testing.T) {
	for name, cutOff := range map[string]func(srv *zktest.Server, session int64){
		"packets are lost":                  func(srv *zktest.Server, s int64) { srv.Blackhole(zktest.BothWays, s) },
		"only answers are lost":             func(srv *zktest.Server, s int64) { srv.Blackhole(zktest.ToClient, s) },
		"the connection breaks":             func(srv *zktest.Server, s int64) { srv.DropConnections(s) },
		"its server is cut off and answers": func(srv *zktest.Server, s int64) { srv.Partition(s) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(w *world) {
				leader, follower := w.enlist(w.connect()), w.enlist(w.connect())
				w.pass(10*time.Second + 7*time.Millisecond) // anywhere between two checks
				old, session := leader.leads(), leader.conn.SessionID()
				done := endOf(old)

				begin := time.Now()
				w.srv.Refuse(true)
				cutOff(w.srv, session)
				w.pass(timeout / 2)
				require.ErrorIs(w, old.Err(), leaderelection.ErrLeaseExpired)
				require.Equal(w, old.Deadline(), done.time(), "Done is closed at the lease's end, and then only")
				require.LessOrEqual(w, done.time().Sub(begin), timeout/2, "reckoned from the last proof")
				require.Equal(w, []leaderelection.Role{leaderelection.Leader, leaderelection.Suspended}, leader.roles())
				require.Equal(w, done.time(), leader.last().at)
				follower.follows(leader)

				w.pass(timeout)
				expired := w.sessionEnd(session)
				next := follower.leads()
				require.True(w, done.time().Before(expired), "Done %v, session %v", done.time(), expired)
				require.Equal(w, expired, follower.when(leaderelection.Leader))
				require.Greater(w, next.Token(), old.Token())

				w.srv.Refuse(false)
				w.srv.Heal(session)
				w.pass(time.Minute)
				require.ErrorIs(w, leader.over(), leaderelection.ErrSessionExpired)
				require.Equal(w, next, follower.leads())
			})
		})
	}
}

// C2: the end of a session was told as the end of the election, or not at all.
func TestC02_SilentExpiry(t *testing.T) {
	for _, place := range []string{"leads alone", "leads", "follows"} {
		for _, reachable := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reachable: %v", place, reachable), func(t *testing.T) {
				play(t, 1, func(w *world) {
					var ahead, behind *candidate
					if place == "follows" {
						ahead = w.enlist(w.connect())
					}
					c := w.enlist(w.connect())
					session, done := c.conn.SessionID(), &instant{}
					if ahead == nil {
						done = endOf(c.leads())
					}
					if place != "leads alone" {
						behind = w.enlist(w.connect())
					}
					w.pass(time.Second)
					expired := time.Now()
					if reachable {
						require.NoError(w, w.srv.ExpireSession(session))
						w.pass(0)
						if ahead == nil {
							require.Equal(w, expired, done.time(), "the server tells of the znode's end")
						}
					} else {
						w.srv.Refuse(true)
						w.srv.Blackhole(zktest.BothWays, session)
						w.pass(2 * timeout)
						expired = w.sessionEnd(session)
						w.srv.Refuse(false)
						w.srv.Heal(session)
					}
					if ahead != nil {
						behind.follows(ahead)
						require.Equal(w, expired, behind.last().at)
					}
					w.pass(timeout)
					require.ErrorIs(w, c.over(), leaderelection.ErrSessionExpired)
					require.NotErrorIs(w, c.over(), leaderelection.ErrElectionOver)
					require.NotErrorIs(w, c.over(), leaderelection.ErrCandidateDeleted)
					switch {
					case ahead != nil:
						ahead.leads()
						behind.follows(ahead)
					case behind != nil:
						behind.leads()
						require.False(w, done.time().After(behind.when(leaderelection.Leader)))
					}
				})
			})
		}
	}
}
