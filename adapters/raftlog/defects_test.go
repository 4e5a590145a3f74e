package raftlog_test

// What is known to be wrong with ØMQ Raft 0.7.1, by the numbers of the list that was made of
// it; each is shown to be absent here.

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// Z1: after a compaction streams failed, and no peer could join.
func TestZ1StreamsAndNewPeersGoOverSnapshots(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.propose(t, w.peers[0], few("a", 10)...)
		time.Sleep(4 * time.Minute)
		index, err := w.node(w.peers[0]).Compact(within(t, time.Minute))
		require.NoError(t, err)
		require.Equal(t, index+1, w.node(w.peers[0]).Info().FirstIndex)
		s := w.node(w.peers[0]).Subscribe(t.Context(), 1)
		defer s.Close()
		r := &reader{next: 1}
		r.take(t, next(t, s))
		require.Equal(t, few("a", 10), r.updates)
		w.start(peer(1), slowly, minute)
		w.change(t, w.peers[0], peer(0), peer(1))
		w.propose(t, peer(1), "b")
		r.until(t, s, "b")
		w.has(t, []api.Peer{peer(0), peer(1)}, append(few("a", 10), "b")...)
	}, slowly, minute)
}

// Z2: whether a reader of entries was stopped by its own wish could not be told.
func TestZ2EndsSayWhy(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		s := w.node(w.peers[0]).Subscribe(t.Context(), 1)
		require.NoError(t, s.Err())
		s.Close()
		require.Error(t, s.Err())
	})
}

// Z3 is of the tool that changes the peers, which asked the leader for ever after it had
// succeeded: see the tests of the command raftlog.

// Z4: after a write had failed callers waited for ever.
func TestZ4FailedWritesAnswer(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p, broken := w.peers[0], errors.New("broken")
		w.propose(t, p, "a")
		w.disks[p.ID].FailWith(w.disks[p.ID].Ops()+1, broken)
		_, err := w.node(p).Propose(t.Context(), requestid.New(), []byte("b"))
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		require.ErrorIs(t, err, api.ErrFault)
		require.ErrorIs(t, err, broken)
	})
}

// Z5: refusals were not: what was to be refused went on. Here it changes nothing.
func TestZ5RefusedIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n := w.node(w.leader(t))
		before := n.Info()
		_, err := n.Propose(within(t, time.Minute), requestid.New(), make([]byte, raftlog.DefaultMaxData+1))
		require.ErrorIs(t, err, api.ErrTooLarge)
		_, err = n.ChangePeers(within(t, time.Minute), requestid.New(), nil)
		require.ErrorIs(t, err, api.ErrInvalid)
		require.Equal(t, before.LastIndex, n.Info().LastIndex)
	})
}

// Z6: a leader without a majority said for ever that it leads.
func TestZ6LeaderWithoutMajorityStepsDown(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		leader := w.leader(t)
		c := stand(t, w.node(leader), "e")
		c.awaitLeader(t)
		w.isolate(leader)
		began := time.Now()
		await(t, "the candidate is told", func() bool { return !c.leads() })
		require.LessOrEqual(t, time.Since(began), 200*time.Millisecond)
		await(t, "the log's leader steps down", func() bool { return w.node(leader).Info().Role != "leader" })
		require.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
	})
}

// Z7: no hand-over (TestCloseHandsOver), no reads that are certain to be of now, followers
// served no entries (TestSubscribe), and one that was cut off disturbed when it came back.
func TestZ7ReadsAndReturns(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.others(w.leader(t))[0]
		heal := w.isolate(p)
		w.propose(t, w.others(p)[0], "meanwhile")
		leader := w.leader(t)
		term := w.node(leader).Info().Term
		require.Error(t, w.node(p).Sync(within(t, time.Second)), "it cannot know")
		time.Sleep(5 * time.Second)
		heal()
		require.NoError(t, w.node(p).Sync(within(t, time.Minute)))
		require.Equal(t, []string{"meanwhile"}, w.sm(p).all())
		time.Sleep(time.Second)
		require.Equal(t, term, w.node(leader).Info().Term)
	})
}

// Z8: of two who proposed the same update one got no answer: TestProposeRepeatedMeanwhile.

// Z9: a log that differs was found back one entry at a time. Here many differ, and few
// questions find where.
func TestZ9DifferentLogsMeetSoon(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.propose(t, w.peers[0], "a")
		leader := w.leader(t)
		heal := w.isolate(leader)
		for i := range 2000 { // only the leader has them
			go func() { _, _ = w.node(leader).Propose(within(t, time.Minute), requestid.New(), fmt.Append(nil, i)) }()
		}
		await(t, "they are in its log", func() bool { return w.node(leader).Info().LastIndex > 2000 })
		for _, u := range few("b", 10) {
			insist(t, w.node(w.others(leader)[0]), requestid.New(), u)
		}
		for _, p := range w.peers { // so that every question takes 20 ms
			for _, q := range w.peers {
				w.net.Delay(p.Addr, q.Addr, 10*time.Millisecond)
			}
		}
		time.Sleep(time.Second)
		began := time.Now()
		heal()
		await(t, "it has the log of the others", func() bool {
			all := w.sm(leader).all()
			return len(all) >= 11 && slices.Equal(all[1:11], few("b", 10))
		})
		require.Less(t, time.Since(began), 3*time.Second)
	})
}

// Z10: a new leader completed a change of the peers only with the next update: see
// TestChangeAndPowerFailures, in which nobody proposes one.

// Z11: IDs were made of host names and counters, and forgotten for others' sake.
func TestZ11IDsAreNotForgottenForOthers(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n, first := w.node(w.peers[0]), requestid.New()
		index, err := n.Propose(within(t, time.Minute), first, []byte("a"))
		require.NoError(t, err)
		for range 30 {
			_, err = n.Propose(within(t, time.Minute), requestid.New(), []byte("b"))
		}
		require.ErrorIs(t, err, api.ErrTooManyIDs)
		again, err := n.Propose(within(t, time.Minute), first, []byte("a"))
		require.NoError(t, err)
		require.Equal(t, index, again)
	}, func(c *raftlog.Config) { c.MaxRequestIDs = 20 })
}

// Z12: the secret was a label that everybody on the network could read: TestSecret,
// TestCertificates, and the tests of internal/link.

// Z13: a follower that was asked to forget what is committed ended its process. Its node stops
// here, and nothing else: one whose log is not what it has confirmed is a case of that.
func TestZ13ContradictionsStopTheNodeAlone(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		leader := w.leader(t)
		p := w.others(leader)[0]
		require.NoError(t, w.stop(p))
		old := w.disks[p.ID].Crash() // a copy of before
		w.disks[p.ID] = old.Crash()
		w.start(p)
		w.propose(t, leader, few("a", 20)...)
		w.has(t, w.peers, few("a", 20)...)
		require.NoError(t, w.stop(p))
		w.disks[p.ID] = old.Crash()
		n := w.start(p)
		await(t, "it has stopped", func() bool { return errors.Is(n.Err(), api.ErrFault) })
		w.propose(t, leader, "b")
		w.has(t, w.others(p), append(few("a", 20), "b")...)
	})
}
