package traptest

import (
	"path"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// What keeps a candidate from winning while the election is being ended.

// The candidates are deleted from the back, so that each hears of its own end
// before that of its predecessor. The mark wakes the second in line before, but
// not where the first candidate may not be written to, or where the mark is that
// of somebody who wakes nobody.
func TestProtection_DeletedFromTheBack(t *testing.T) {
	for name, unwoken := range map[string]struct {
		leader leaderelection.Option
		mark   bool
	}{
		"the leader's znode cannot be written to": {leader: leaderelection.WithACL(zk.WorldACL(zk.PermAll &^ zk.PermWrite))},
		"somebody else has set the mark":          {leader: leaderelection.WithClientName(""), mark: true},
	} {
		for way, end := range ends {
			t.Run(name+", "+way, func(t *testing.T) {
				play(t, 1, func(w *world) {
					conn, slow := w.connectNarrow()
					leader, second := w.enlist(w.connect(), unwoken.leader), w.enlist(conn)
					third := w.enlist(w.connect())
					if unwoken.mark {
						_, err := w.operator.Create(path.Join(node, "DONE"), []byte("done"), 0, anybody)
						require.NoError(w, err)
					}
					w.pass(time.Second + 60*time.Millisecond)
					second.follows(leader)
					slow.slow(gap)
					require.NoError(w, end(w, leader))
					w.pass(time.Second)
					for _, c := range []*candidate{leader, second, third} {
						require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
					}
					require.NotContains(w, append(second.roles(), third.roles()...), leaderelection.Leader)
					w.isGone()
				})
			})
		}
	}
}

// The second in line, which could win without asking, is woken by the mark, also
// if the deletion goes no further.
func TestProtection_MarkWakesTheSecond(t *testing.T) {
	play(t, 1, func(w *world) {
		leader, second, third := w.enlist(w.connect()), w.enlist(w.connect()), w.enlist(w.connect())
		deleter := w.connect()
		hold, release := w.hold()
		w.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: deleter.SessionID(), Nth: 2}, hold)
		ended := make(chan error, 1)
		go func() { ended <- leaderelection.DeleteElection(deleter, node) }()
		w.pass(0)
		require.ErrorIs(w, second.over(), leaderelection.ErrElectionOver)
		require.ErrorIs(w, third.over(), leaderelection.ErrElectionOver)
		require.NoError(w, leader.leads().Err(), "nobody has told the leader")
		require.NoError(w, leader.Resign())
		w.pass(0)
		w.stands("DONE")
		release()
		require.NoError(w, <-ended)
		w.isGone()
	})
}

// The mark is there before anybody is deleted, and goes with the node.
func TestProtection_MarkFirstAndLast(t *testing.T) {
	play(t, 1, func(w *world) {
		mark := path.Join(node, "DONE")
		others := []string{w.contender(), w.contender()}
		w.srv.ResetLog()
		require.NoError(w, leaderelection.DeleteElection(w.operator, node))
		var order []string
		for _, e := range w.sent(zktest.OpMulti, 0) {
			order = append(order, e.Path)
		}
		require.Equal(w, []string{mark, others[1], mark}, order)
		require.Empty(w, w.sent(zktest.OpDelete, 0), "nothing goes by itself")
	})
}
