package raftlog_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// An update that a leadership guards is applied while that lasts, and never after another
// candidate has become the first: not even one that was on its way.
func TestGuardedUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		nodes := w.startAll()
		elections := make([]*raftlog.Election, 3)
		for i, n := range nodes {
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

		// What the leader proposes while it is cut off is not lost: it arrives when another
		// candidate is the first, and is not applied.
		grant := elections[0].Current().Leadership
		heal := w.isolate(w.peers[0])
		late := make(chan error, 1)
		go func() {
			_, err := elections[0].Propose(t.Context(), requestid.New(), []byte("late"))
			late <- err
		}()
		synctest.Wait()
		for {
			s := <-elections[1].Status()
			if s.Role == leaderelection.Leader {
				require.Greater(t, s.Leadership.Token(), grant.Token())
				break
			}
		}
		heal()
		err = <-late
		if err != nil && !isAny(err, leaderelection.ErrNotLeader, raftlog.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		require.Error(t, err)
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

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}
