package traptest

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// crowd makes the list of candidates larger than the connections of a world receive.
func (w *world) crowd() *zk.Conn {
	conn := w.connectUnlimited()
	for range 1200 {
		_, err := conn.Create(path.Join(node, "_c_00000000-0000-4000-8000-000000000000-latch-"), nil, zk.FlagEphemeral|zk.FlagSequence, anybody)
		require.NoError(w, err)
	}
	return conn
}

// Netflix/curator #76: a candidate that cannot receive the list of candidates ends with an error, and its znode
// does not keep others waiting.
func TestTrap37_TooManyCandidates(t *testing.T) {
	play(t, 1, func(w *world) {
		w.crowd()
		conn := w.connect()
		_, err := w.operator.Create("/other", nil, 0, anybody)
		require.NoError(w, err)
		other := w.candidateAt("/other", conn)
		other.begin()
		w.pass(0)
		other.leads()

		before := len(w.ids())
		w.srv.ResetLog()
		c := w.enlist(conn)
		w.pass(10 * timeout)
		err = c.over()
		require.ErrorIs(w, err, leaderelection.ErrTooLarge)
		require.ErrorContains(w, err, "the list of children of "+node)
		require.Len(w, w.ids(), before)
		require.LessOrEqual(w, w.srv.Log().Count(zktest.OpConnect), 4)
		other.leads()

		for range 2 {
			_, err = leaderelection.Candidates(conn, node)
			require.ErrorIs(w, err, leaderelection.ErrTooLarge)
			_, _, err = leaderelection.CurrentLeader(conn, node)
			require.ErrorIs(w, err, leaderelection.ErrTooLarge)
			_, err = leaderelection.Observe(w.Context(), conn, node)
			require.ErrorIs(w, err, leaderelection.ErrTooLarge)
			err = leaderelection.DeleteElection(conn, node)
			require.ErrorIs(w, err, leaderelection.ErrTooLarge)
		}
		require.Len(w, w.ids(), before)
	})
}

// A name that is larger than a connection receives does not hide that its candidate leads.
func TestTrap37_NameTooLarge(t *testing.T) {
	play(t, 1, func(w *world) {
		big := w.connectUnlimited()
		id, err := big.Create(node+"/n_", []byte(strings.Repeat("x", 100<<10)), zk.FlagEphemeral|zk.FlagSequence, anybody)
		require.NoError(w, err)
		conn := w.connect()
		leader, found, err := leaderelection.CurrentLeader(conn, node)
		require.NoError(w, err)
		require.True(w, found)
		require.Equal(w, leaderelection.CandidateInfo{ID: id, Token: w.stat(id).Czxid}, leader)
		observed, err := leaderelection.Observe(w.Context(), conn, node)
		require.NoError(w, err)
		require.Equal(w, leader, *(<-observed).Leader)
		c := w.enlist(conn)
		w.pass(timeout)
		require.ErrorIs(w, c.over(), leaderelection.ErrTooLarge)
		require.ErrorContains(w, c.over(), fmt.Sprint("the data of ", id))

		next := w.enlist(w.connectUnlimited())
		require.Equal(w, id, next.last().NowFollowing)
		w.remove(id)
		w.pass(0)
		next.leads()
		w.pass(timeout)
		require.Equal(w, next.ID(), (<-observed).Leader.ID)
	})
}
