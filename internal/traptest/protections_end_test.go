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
				withServers(t, 1, func(h *harness) {
					conn, pause := h.connectSlowly()
					leader, second := h.join(h.connect(), unwoken.leader), h.join(conn)
					third := h.join(h.connect())
					if unwoken.mark {
						_, err := h.operator.Create(path.Join(node, "DONE"), []byte("done"), 0, openACL)
						require.NoError(h, err)
					}
					h.advance(time.Second + 60*time.Millisecond)
					second.requireFollows(leader)
					pause.set(gap)
					require.NoError(h, end(h, leader))
					h.advance(time.Second)
					for _, c := range []*candidate{leader, second, third} {
						require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
					}
					require.NotContains(h, append(second.roles(), third.roles()...), leaderelection.Leader)
					h.requireNoElection()
				})
			})
		}
	}
}

// The second in line, which could win without asking, is woken by the mark, also
// if the deletion goes no further.
func TestProtection_MarkWakesTheSecond(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		leader, second, third := h.join(h.connect()), h.join(h.connect()), h.join(h.connect())
		deleter := h.connect()
		hold, release := h.hold()
		h.srv.Before(zktest.Match{Op: zktest.OpMulti, Session: deleter.SessionID(), Nth: 2}, hold)
		ended := make(chan error, 1)
		go func() { ended <- leaderelection.DeleteElection(deleter, node) }()
		h.advance(0)
		require.ErrorIs(h, second.requireOver(), leaderelection.ErrElectionOver)
		require.ErrorIs(h, third.requireOver(), leaderelection.ErrElectionOver)
		require.NoError(h, leader.requireLeads().Err(), "nobody has told the leader")
		require.NoError(h, leader.Resign())
		h.advance(0)
		h.requireChildren("DONE")
		release()
		require.NoError(h, <-ended)
		h.requireNoElection()
	})
}

// The mark is there before openACL is deleted, and goes with the node.
func TestProtection_MarkFirstAndLast(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		mark := path.Join(node, "DONE")
		others := []string{h.createContender(), h.createContender()}
		h.srv.ResetLog()
		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		var order []string
		for _, e := range h.requests(zktest.OpMulti, 0) {
			order = append(order, e.Path)
		}
		require.Equal(h, []string{mark, others[1], mark}, order)
		require.Empty(h, h.requests(zktest.OpDelete, 0), "nothing goes by itself")
	})
}
