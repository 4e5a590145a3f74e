package raftlog_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

func TestObserve(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.others(w.leader(t))[0]
		n := w.node(p)
		looking, stop := context.WithCancel(t.Context())
		defer stop()
		in, err := raftlog.Observe(looking, n, "e")
		require.NoError(t, err)
		next := func() leaderelection.Observation {
			t.Helper()
			select {
			case o := <-in:
				return o
			case <-time.After(time.Minute):
				t.Fatal("nothing is observed")
			}
			return leaderelection.Observation{}
		}
		require.Equal(t, leaderelection.Observation{}, next(), "nobody")

		first := stand(t, w.node(w.peers[0]), "e")
		first.awaitLeader(t)
		o := next()
		require.Equal(t, first.ID(), o.Leader.ID)
		require.EqualValues(t, first.Current().Leadership.Token(), o.Leader.Token)
		_, found, err := raftlog.CurrentLeader(t.Context(), n, "other")
		require.NoError(t, err)
		require.False(t, found)

		// What is not of the leader is no news, and nor is another election.
		second := stand(t, w.node(w.peers[1]), "e")
		stand(t, n, "other").awaitLeader(t)
		insist(t, n, requestid.New(), "an update")
		synctest.Wait()
		select {
		case o := <-in:
			t.Fatal(o)
		default:
		}

		// Who is late gets the newest.
		first.Resign()
		second.awaitLeader(t)
		second.Resign()
		third := stand(t, n, "e")
		third.awaitLeader(t)
		synctest.Wait()
		o = next()
		require.Equal(t, third.ID(), o.Leader.ID)
		now, found, err := raftlog.CurrentLeader(t.Context(), n, "e")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, *o.Leader, now)

		require.NoError(t, raftlog.DeleteElection(within(t, time.Minute), n, "e"))
		require.ErrorIs(t, next().Err, leaderelection.ErrElectionOver)
		_, open := <-in
		require.False(t, open)
		in, err = raftlog.Observe(looking, n, "e")
		require.NoError(t, err)
		require.ErrorIs(t, next().Err, leaderelection.ErrElectionOver)
		_, _, err = raftlog.CurrentLeader(t.Context(), n, "e")
		require.ErrorIs(t, err, leaderelection.ErrElectionOver)

		in, err = raftlog.Observe(looking, n, "f")
		require.NoError(t, err)
		stop()
		next() // nobody, or the end
		synctest.Wait()
		_, open = <-in
		require.False(t, open)

		_, err = raftlog.Observe(t.Context(), n, "")
		require.ErrorIs(t, err, leaderelection.ErrInvalidPath)
		_, err = raftlog.Observe(looking, n, "e")
		require.ErrorIs(t, err, context.Canceled)
	})
}

// An observer hears of the end of its node, also one that has read nothing.
func TestObserverIsToldOfTheEnd(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.others(w.leader(t))[0]
		n := w.node(p)
		in, err := raftlog.Observe(t.Context(), n, "e")
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, w.stop(p))
		require.ErrorIs(t, (<-in).Err, leaderelection.ErrConnClosed)
		_, open := <-in
		require.False(t, open)
		_, err = raftlog.Observe(t.Context(), n, "e")
		require.ErrorIs(t, err, leaderelection.ErrConnClosed)
	})
}

// Of a peer that was removed as well.
func TestObserverOfARemovedPeer(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		p := w.others(w.leader(t))[0]
		in, err := raftlog.Observe(t.Context(), w.node(p), "e")
		require.NoError(t, err)
		_, err = w.node(p).ChangePeers(within(t, time.Minute), requestid.New(), w.others(p))
		require.NoError(t, err)
		for o := range in {
			if o.Err != nil {
				require.ErrorIs(t, o.Err, leaderelection.ErrConnClosed)
				require.ErrorIs(t, o.Err, api.ErrRefused)
				return
			}
		}
		t.Fatal("no reason was given")
	})
}
