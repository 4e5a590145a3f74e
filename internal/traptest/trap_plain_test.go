package traptest

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// The traps of creates, with names that have no GUID.

// plain gives all candidates names without a GUID.
func plain(f func(w *world)) func(w *world) {
	return func(w *world) {
		w.options = append(w.options, leaderelection.WithNaming(leaderelection.Prefix("n_")))
		f(w)
	}
}

func plainLoss(f func(w *world, l loss)) func(w *world, l loss) {
	return func(w *world, l loss) { plain(func(w *world) { f(w, l) })(w) }
}

func TestTrap01_CreateAnswerLost_PlainNames(t *testing.T) {
	each(t, losses, 1, plainLoss(createAnswerLost))
}

func TestTrap10_SessionMovedDuringCreate_PlainNames(t *testing.T) {
	each(t, answers, 1, plainLoss(createAnswerLost))
}

// A znode of another session with the same prefix is another candidate's, and stays.
func TestTrap02_ForeignOwner_PlainNames(t *testing.T) {
	play(t, 1, plain(func(w *world) {
		lost := w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.srv.Refuse(true)
			return zktest.Cut(q)
		})
		c := w.enlist(w.connect())
		w.ran(lost)
		w.remove(w.created()[0])
		other, err := w.operator.Create(node+"/n_", []byte("name-not-provided"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		w.restore()
		require.Equal(w, other, c.last().NowFollowing)
		w.line(other, c.ID())
	}))
}

// A znode of the same session with other data is not the candidate's.
func TestTrap02_ForeignData_PlainNames(t *testing.T) {
	play(t, 1, plain(func(w *world) {
		conn := w.connect()
		lost := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 2}, zktest.Cut)
		other, err := conn.Create(node+"/n_", []byte("of this program, for something else"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		c := w.enlist(conn)
		w.ran(lost)
		w.restore()
		require.Equal(w, other, c.last().NowFollowing)
		c.resign()
		w.line(other)
	}))
}

func TestTrap02_SessionEndsBeforeTheSearch_PlainNames(t *testing.T) {
	play(t, 1, plain(sessionEndsBeforeTheSearch))
}

func TestTrap40_EndDuringTheCreate_PlainNames(t *testing.T) {
	each(t, losses[2:], 1, plainLoss(func(w *world, l loss) {
		l.set(w.srv, zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1})
		endsDuringTheCreate(w, func() {})
	}))
}

// The search is answered by a server that lags behind.
func TestTrap03_SearchAtALaggingServer_PlainNames(t *testing.T) {
	play(t, 3, plain(func(w *world) {
		lagging, conn := w.ensemble.Server(1), w.connect()
		lagging.Lag()
		lost := w.srv.After(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, zktest.Cut)
		c := w.enlist(conn)
		w.ran(lost)
		w.pass(timeout / 4)
		require.Empty(w, c.all(), "nobody can know yet")
		lagging.Heal()
		w.pass(0)
		c.leads()
		c.alone()
		require.Len(w, w.created(), 1)
	}))
}

// What the search has not shown appears later, ahead of the znode in use.
func TestTrap03_OwnZnodeShowsUpLate_PlainNames(t *testing.T) {
	play(t, 1, plain(func(w *world) {
		conn := w.connect()
		ahead := w.stand(w.operator)
		w.remove(w.stand(w.operator)) // leaves a gap in the numbers
		lost := w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: under, Nth: 1}, zktest.Cut)
		c := w.enlist(conn)
		w.ran(lost)
		w.restore()
		require.Equal(w, ahead, c.last().NowFollowing)

		late := func(number string) {
			_, err := conn.Create(node+"/n_"+number, []byte("name-not-provided"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
		}
		late("0000000001")
		_, err := w.operator.Set(ahead, []byte("has the candidate look again"), -1)
		require.NoError(w, err)
		w.pass(0)
		w.line(ahead, c.ID())
		w.remove(ahead)
		w.pass(0)
		c.leads()
		// One that shows up still later goes when the candidate does.
		late("0000000000")
		c.resign()
		w.line()
	}))
}

// Of several candidates on one connection none takes another's znode for its own,
// whosever create has lost its reply.
func TestTrap01_CandidatesOfOneConnection_PlainNames(t *testing.T) {
	for nth := 1; nth <= 4; nth++ {
		each(t, losses, 1, plainLoss(func(w *world, l loss) {
			conn := w.connect()
			l.set(w.srv, zktest.Match{Op: zktest.OpCreate, Path: under, Nth: nth})
			var all []*candidate
			for range 4 {
				all = append(all, w.start(conn))
			}
			w.pass(timeout)
			w.pass(timeout)
			ids := map[string]bool{}
			leaders := 0
			for _, c := range all {
				ids[c.ID()] = true
				if c.last().Role == leaderelection.Leader {
					leaders++
				}
			}
			require.Len(w, ids, 4)
			require.Len(w, w.ids(), 4)
			require.Equal(w, 1, leaders)
			for _, c := range all {
				require.NoError(w, c.Resign())
			}
			w.pass(0)
			w.line()
		}))
	}
}

// A persistent child is not a candidate, whatever its name. An ephemeral one is, if its
// name ends in ten digits.
func TestPersistentChildrenAreNoCandidates(t *testing.T) {
	for _, naming := range []leaderelection.Naming{leaderelection.CuratorLatch, leaderelection.Prefix("n_"), leaderelection.Prefix("")} {
		play(t, 1, func(w *world) {
			lasting := []string{"n_0000000000", "0000000001", "config-0000000002"}
			for _, name := range lasting {
				w.create(node + "/" + name)
			}
			require.NoError(w, w.srv.SetSequence(node, 10))
			ahead, err := w.operator.Create(node+"/worker-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
			var log strings.Builder
			c := w.enlist(w.connect(), leaderelection.WithNaming(naming), leaderelection.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			next := w.enlist(w.connect(), leaderelection.WithNaming(naming))
			require.Equal(w, ahead, c.last().NowFollowing)
			next.follows(c)
			first, found, err := leaderelection.CurrentLeader(w.operator, node)
			require.NoError(w, err)
			require.True(w, found)
			require.Equal(w, ahead, first.ID)
			all, err := leaderelection.Candidates(w.operator, node)
			require.NoError(w, err)
			require.Len(w, all, 3)

			w.remove(ahead)
			w.pass(0)
			c.leads()
			for _, name := range lasting {
				require.Contains(w, log.String(), "level=WARN msg=\"ignoring a child that is named like a candidate but is not ephemeral\" ")
				require.Contains(w, log.String(), "path="+node+"/"+name)
			}
			first, found, err = leaderelection.CurrentLeader(w.operator, node)
			require.NoError(w, err)
			require.True(w, found)
			require.Equal(w, c.ID(), first.ID)
			require.ErrorIs(w, leaderelection.DeleteElection(w.operator, node), leaderelection.ErrForeignChildren)
			c.leads()
			c.resign()
			next.leads()
		})
	}
}

// With persistent children alone there is no leader to observe.
func TestPersistentChildrenAreNotObserved(t *testing.T) {
	play(t, 1, func(w *world) {
		w.create(node + "/n_0000000000")
		_, found, err := leaderelection.CurrentLeader(w.operator, node)
		require.NoError(w, err)
		require.False(w, found)
		observed, err := leaderelection.Observe(w.Context(), w.operator, node)
		require.NoError(w, err)
		require.Nil(w, (<-observed).Leader)
		c := w.enlist(w.connect())
		require.Equal(w, c.ID(), (<-observed).Leader.ID)
	})
}

// The order of two candidates with the same number is unknown.
func TestAmbiguousCandidates(t *testing.T) {
	play(t, 1, func(w *world) {
		twin := node + "/n_0000000000"
		_, err := w.operator.Create(twin, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		require.NoError(w, w.srv.SetSequence(node, 0))
		conn := w.connect()
		c := w.enlist(conn)
		err = c.over()
		require.ErrorIs(w, err, leaderelection.ErrAmbiguous)
		require.ErrorContains(w, err, c.ID())
		require.ErrorContains(w, err, twin)
		w.line(twin)

		// It is not ambiguous if one of them is persistent.
		w.remove(twin)
		w.create(twin)
		require.NoError(w, w.srv.SetSequence(node, 0))
		again := w.enlist(conn)
		again.leads()
	})
}

// A deletion deletes hand-written candidates with the election.
func TestHandWrittenCandidatesAreDeleted(t *testing.T) {
	play(t, 1, func(w *world) {
		for _, prefix := range []string{"n_", "", "node_"} {
			_, err := w.operator.Create(node+"/"+prefix, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
		}
		c := w.enlist(w.connect())
		require.NoError(w, leaderelection.DeleteElection(w.operator, node))
		w.pass(timeout)
		require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
		w.isGone()
	})
}
