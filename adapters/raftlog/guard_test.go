package raftlog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// An update that a leadership guards is applied while that lasts, and never after another
// candidate has become the first: not even one that was on its way by then.
func TestGuardedUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		nodes := w.startAll()
		elections := make([]*raftlog.Election, 2)
		for i, n := range nodes[:2] {
			var err error
			elections[i], err = raftlog.NewElection(n, "e")
			require.NoError(t, err)
			go elections[i].ElectLeader()
			if i == 0 {
				for s := range elections[0].Status() {
					if s.Role == leaderelection.Leader {
						break
					}
				}
			}
		}
		one := requestid.New()
		index, err := elections[0].Propose(t.Context(), one, []byte("one"))
		require.NoError(t, err)
		_, err = elections[1].Propose(t.Context(), requestid.New(), []byte("not the leader"))
		require.ErrorIs(t, err, leaderelection.ErrNotLeader)

		// The process is late: what it sends is on its way when another candidate is the first.
		grant := elections[0].Current().Leadership
		require.NoError(t, elections[0].Resign())
		for s := range elections[1].Status() {
			if s.Role == leaderelection.Leader {
				require.Greater(t, s.Leadership.Token(), grant.Token())
				break
			}
		}
		_, err = raftlog.ProposeGuarded(t.Context(), nodes[0], "e", grant.Token(), requestid.New(), []byte("late"))
		require.ErrorIs(t, err, leaderelection.ErrNotLeader)
		again, err := elections[1].Propose(t.Context(), one, []byte("one"))
		require.NoError(t, err)
		require.Equal(t, index, again, "it was applied under the leader before")
		time.Sleep(time.Second)
		for _, sm := range w.sms {
			require.Equal(t, []string{"one"}, sm.all())
		}
		for _, n := range nodes {
			n.Close()
		}
		synctest.Wait()
	})
}
