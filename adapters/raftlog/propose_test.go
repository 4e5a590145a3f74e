package raftlog_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
)

// TestPropose_SucceedsAtAnyPeer checks that an update can be proposed at each peer, and that Propose returns
// after the peer that was called has applied the update.
func TestPropose_SucceedsAtAnyPeer(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		last := uint64(0)
		for _, p := range h.peers {
			index := h.propose(t, p, api.NewRequestID(), p.ID)
			require.Greater(t, index, last)
			last = index
			require.Contains(t, h.machine(p).recordedUpdates(), p.ID, "Propose returns after its peer has applied the update")
		}
		h.requireUpdates(t, h.peers, "p0", "p1", "p2")
	})
}

// TestPropose_AppliesConcurrentUpdatesInOneOrder checks that concurrent updates are not lost, and are applied
// in one order.
func TestPropose_AppliesConcurrentUpdatesInOneOrder(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		const n = 300
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				_, err := h.nodeOf(h.peers[i%3]).Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte{byte(i), byte(i >> 8)})
				assert.NoError(t, err)
			})
		}
		all.Wait()
		h.syncPeer(t, h.peers[0])
		applied := h.machine(h.peers[0]).recordedUpdates()
		require.Len(t, applied, n)
		h.requireUpdates(t, h.peers, applied...)
	})
}

// TestPropose_RetryIsAppliedOnce checks that an update that is retried is not applied again, at any peer,
// after restarts, snapshots and power failures.
func TestPropose_RetryIsAppliedOnce(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		id := api.NewRequestID()
		index := h.propose(t, h.peers[0], id, "once")
		retry := func(when string) {
			t.Helper()
			for _, p := range h.peers {
				require.Equal(t, index, h.propose(t, p, id, "once"), when)
				_, err := h.nodeOf(p).Propose(contextWithin(t, time.Minute), id, []byte("other"))
				require.ErrorIs(t, err, api.ErrRequestIDReused, when)
			}
		}
		retry("without another update")
		h.proposeAll(t, h.peers[1], "more")
		retry("after another update")
		for _, p := range h.peers {
			require.NoError(t, h.stopPeer(p))
		}
		h.startAll()
		retry("after a restart of all peers")
		h.compact(t, h.peers...)
		for _, p := range h.peers {
			h.crashPeer(p)
		}
		h.startAll()
		retry("after snapshots and a power failure of all peers")
		h.requireUpdates(t, h.peers, "once", "more")
	})
}

// TestPropose_RetryAtNewPeerIsAppliedOnce checks that a peer that has joined with a snapshot knows the request
// IDs of earlier updates when it leads the log.
func TestPropose_RetryAtNewPeerIsAppliedOnce(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		id := api.NewRequestID()
		index := h.propose(t, h.peers[0], id, "once")
		h.compact(t, h.peers...)
		fresh := peerInfo(3)
		h.startPeer(fresh)
		h.changeVoters(t, fresh, fresh)
		waitFor(t, "the new peer leads", func() bool { return isLeader(h.nodeOf(fresh)) })
		i := h.propose(t, fresh, id, "once")
		require.Equal(t, index, i)
		h.requireUpdates(t, []api.Peer{fresh}, "once")
	})
}

// TestPropose_RejectsInvalidIDAndTooMuchData checks that Propose rejects an invalid, stale or future request
// ID, and too much data, without writing an entry, and that it accepts valid updates.
func TestPropose_RejectsInvalidIDAndTooMuchData(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		for _, p := range []api.Peer{leader, h.otherPeers(leader)[0]} {
			last := h.nodeOf(leader).Info().LastIndex
			for _, c := range []struct {
				id   api.RequestID
				data []byte
				err  error
			}{
				{api.RequestID{}, nil, api.ErrInvalid},
				{api.RequestIDAt(time.Now().Add(-7*time.Hour - time.Second)), nil, api.ErrStale},
				{api.RequestIDAt(time.Now().Add(15*time.Minute + time.Second)), nil, api.ErrFuture},
				{api.NewRequestID(), bytes.Repeat([]byte("x"), 101), api.ErrTooLarge},
			} {
				_, err := h.nodeOf(p).Propose(contextWithin(t, time.Minute), c.id, c.data)
				require.ErrorIs(t, err, c.err)
			}
			require.Equal(t, last, h.nodeOf(leader).Info().LastIndex)
			for _, at := range []time.Duration{-7*time.Hour + time.Second, 15*time.Minute - time.Second} {
				h.propose(t, p, api.RequestIDAt(time.Now().Add(at)), "in time")
			}
			_, err := h.nodeOf(p).Propose(contextWithin(t, time.Minute), api.NewRequestID(), bytes.Repeat([]byte("x"), 100))
			require.NoError(t, err)
		}
	}, func(c *raftlog.Config) { c.MaxData = 100 })
}

// TestMaxData_LimitsUpdatesOnly checks that a small MaxData does not limit elections or changes of the voters.
func TestMaxData_LimitsUpdatesOnly(t *testing.T) {
	small := func(c *raftlog.Config) { c.MaxData = 1 }
	runCluster(t, 3, func(t *testing.T, h *harness) {
		startLeader(t, h.nodeOf(h.peers[0]), "e")
		h.startPeer(peerInfo(3), small) // the new peer needs the same limit, because it may become the leader
		h.changeVoters(t, h.peers[0], peerInfo(0), peerInfo(1), peerInfo(3))
		_, err := h.nodeOf(h.peers[0]).Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte("xx"))
		require.ErrorIs(t, err, api.ErrTooLarge)
	}, small)
}

// TestMaxRequestIDs_RejectsFurtherUpdates checks that updates are rejected while the maximum number of request
// IDs is within the deduplication window, and accepted when an ID has left the window, although nothing was
// written in between.
func TestMaxRequestIDs_RejectsFurtherUpdates(t *testing.T) {
	runCluster(t, 1, func(t *testing.T, h *harness) {
		p, first := h.peers[0], api.NewRequestID()
		n := h.nodeOf(p)
		index := h.propose(t, p, first, "x")
		time.Sleep(210 * time.Second)
		id := api.NewRequestID()
		for _, id := range []api.RequestID{api.NewRequestID(), id} {
			h.propose(t, p, id, "x")
		}
		_, err := n.Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte("y"))
		require.ErrorIs(t, err, api.ErrTooManyIDs)
		require.Equal(t, index, h.propose(t, p, first, "x"), "the node replies to a known ID")
		start := time.Now()
		for {
			_, err := n.Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte("z"))
			if err == nil {
				break
			}
			require.ErrorIs(t, err, api.ErrTooManyIDs)
			require.Less(t, time.Since(start), 4*time.Minute, "the first ID does not expire")
			time.Sleep(10 * time.Second)
		}
		require.Greater(t, time.Since(start), 80*time.Second, "IDs expired within the window")
		_, err = n.Propose(contextWithin(t, time.Minute), id, []byte("x"))
		if err != nil { // for a short time after the window, peers may still remember the ID
			require.ErrorIs(t, err, api.ErrStale)
		}
		h.requireUpdates(t, h.peers, "x", "x", "x", "z")
	}, slowElections, func(c *raftlog.Config) { c.MaxRequestIDs, c.Window = 3, 4*time.Minute })
}

// TestPropose_ReturnsErrUnknownOutcomeIfLeaderIsLost checks that Propose returns ErrUnknownOutcome if the
// leader is lost while an update is in flight, and that a retry with the same ID determines the outcome.
func TestPropose_ReturnsErrUnknownOutcomeIfLeaderIsLost(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		other := h.otherPeers(leader)[0]
		h.proposeAll(t, other, "before")
		heal := h.isolate(leader)
		ids := []api.RequestID{api.NewRequestID(), api.NewRequestID()}
		for i, p := range []api.Peer{leader, other} {
			_, err := h.nodeOf(p).Propose(contextWithin(t, time.Minute), ids[i], []byte(p.ID))
			if p == leader {
				require.ErrorIs(t, err, api.ErrUnknownOutcome)
				continue
			}
			if err != nil {
				require.ErrorIs(t, err, api.ErrUnknownOutcome)
			}
			index := proposeUntilKnown(t, h.nodeOf(p), ids[i], p.ID)
			again := h.propose(t, p, ids[i], p.ID)
			require.Equal(t, index, again)
		}
		heal()
		h.propose(t, leader, ids[0], leader.ID)
		h.requireUpdates(t, h.peers, "before", other.ID, leader.ID)
	})
}

// TestPropose_WaitsForLeaderUntilContextIsDone checks that Propose waits for a leader until its context is
// done.
func TestPropose_WaitsForLeaderUntilContextIsDone(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		h.waitForLeader(t)
		for _, p := range h.peers[1:] {
			require.NoError(t, h.stopPeer(p))
		}
		n := h.nodeOf(h.peers[0])
		waitFor(t, "no leader", func() bool { return n.Info().Leader == api.Peer{} })
		start := time.Now()
		_, err := n.Propose(contextWithin(t, 5003*time.Millisecond), api.NewRequestID(), []byte("x"))
		require.ErrorIs(t, err, api.ErrNotLeader)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 5003*time.Millisecond, time.Since(start))
		cause := errors.New("cancelled by the test")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(1003*time.Millisecond, func() { cancel(cause) })
		_, err = n.Propose(ctx, api.NewRequestID(), []byte("x"))
		require.ErrorIs(t, err, cause)
		require.ErrorIs(t, n.Sync(contextWithin(t, time.Second)), context.DeadlineExceeded)
		h.startPeer(h.peers[1])
		h.proposeAll(t, h.peers[0], "x")
	})
}

// TestPropose_LosesNoConfirmedUpdateInPowerFailures checks that no confirmed update is lost, and none is
// applied twice, in power failures of leaders or of all peers.
func TestPropose_LosesNoConfirmedUpdateInPowerFailures(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		var want []string
		for round := range 6 {
			leader := h.waitForLeader(t)
			asked := h.otherPeers(leader)[round%2]
			id := api.NewRequestID()
			result := make(chan error, 1)
			go func() {
				_, err := h.nodeOf(asked).Propose(contextWithin(t, time.Minute), id, []byte("by "+leader.ID))
				result <- err
			}()
			time.Sleep(time.Duration(round) * time.Millisecond / 4)
			h.crashPeer(leader)
			if err := <-result; err != nil {
				require.ErrorIs(t, err, api.ErrUnknownOutcome)
			}
			proposeUntilKnown(t, h.nodeOf(asked), id, "by "+leader.ID)
			h.startPeer(leader)
			want = append(want, "by "+leader.ID)
			if round%3 == 2 {
				for _, p := range h.peers {
					h.crashPeer(p)
				}
				h.startAll()
			}
		}
		h.requireUpdates(t, h.peers, want...)
	})
}

// TestPropose_ReturnsErrClosedAfterClose checks that pending calls return when their node is closed, and that
// later calls return ErrClosed without ErrUnknownOutcome.
func TestPropose_ReturnsErrClosedAfterClose(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		n := h.nodeOf(h.waitForLeader(t))
		synced, proposed := make(chan error, 1), make(chan error, 1)
		for _, p := range h.otherPeers(n.Info().Peer) {
			require.NoError(t, h.stopPeer(p))
		}
		go func() {
			_, err := n.Propose(t.Context(), api.NewRequestID(), []byte("x"))
			proposed <- err
		}()
		go func() { synced <- n.Sync(t.Context()) }()
		synctest.Wait()
		require.NoError(t, n.Close())
		require.ErrorIs(t, <-synced, api.ErrClosed)
		require.ErrorIs(t, <-proposed, api.ErrUnknownOutcome, "the update is in the log of one of three peers")
		for range 10 {
			_, err := n.Propose(t.Context(), api.NewRequestID(), []byte("x"))
			require.ErrorIs(t, err, api.ErrClosed)
			require.NotErrorIs(t, err, api.ErrUnknownOutcome)
		}
		_, err := n.ChangePeers(t.Context(), api.NewRequestID(), h.peers[:1])
		require.ErrorIs(t, err, api.ErrClosed)
		require.ErrorIs(t, n.Sync(t.Context()), api.ErrClosed)
		_, err = n.Compact(t.Context())
		require.ErrorIs(t, err, api.ErrClosed)
		_, err = n.Membership(t.Context())
		require.ErrorIs(t, err, api.ErrClosed)
		require.ErrorIs(t, n.Err(), api.ErrClosed)
		<-n.Done()
		require.NoError(t, n.Close())
	})
}

// TestPropose_RejectsUpdateLargerThanFrame checks that each peer rejects an update that exceeds the limit of
// frames, which it could not send to the leader.
func TestPropose_RejectsUpdateLargerThanFrame(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		for _, p := range h.peers {
			_, err := h.nodeOf(p).Propose(contextWithin(t, time.Minute), api.NewRequestID(), make([]byte, 49<<20))
			require.ErrorIs(t, err, api.ErrTooLarge, "at %s", p.ID)
			require.NotErrorIs(t, err, api.ErrUnknownOutcome)
		}
	})
}

// TestPropose_SyncsOncePerPeer checks that an update needs only one write and one sync at each peer. The
// commit index is written with the next update, or when the peer is closed.
func TestPropose_SyncsOncePerPeer(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.waitForLeader(t)
		h.proposeAll(t, p, "the first")
		synctest.Wait()
		before := map[string]int{}
		for _, p := range h.peers {
			before[p.ID] = h.disks[p.ID].Ops()
		}
		const updates = 20
		for _, u := range numberedUpdates("u", updates) {
			h.proposeAll(t, p, u)
			synctest.Wait()
		}
		for _, p := range h.peers {
			require.Equal(t, 2*updates, h.disks[p.ID].Ops()-before[p.ID], "writes and syncs at %s", p.ID)
		}

		last := h.nodeOf(p).Info().LastIndex
		time.Sleep(2 * time.Millisecond) // wait until the other peers have learned the last commit index
		for _, p := range h.otherPeers(p) {
			require.NoError(t, h.stopPeer(p))
			log, err := filelog.Open(h.disks[p.ID], "log", filelog.Options{ReadOnly: true})
			require.NoError(t, err)
			require.Equal(t, last, log.HardState().GetCommit(), "at %s", p.ID)
			require.NoError(t, log.Close())
		}
	})
}

// TestElectionPropose_AppliesOnlyDuringLeadership checks that Election.Propose applies no update of a former
// leader after another candidate has become leader, and that an update that was applied before is not applied
// again when the next leader retries it.
func TestElectionPropose_AppliesOnlyDuringLeadership(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		first := startLeader(t, h.nodeOf(h.peers[0]), "e")
		second := startCandidate(t, h.nodeOf(h.peers[1]), "e")
		one := api.NewRequestID()
		former := first.Current().Leadership
		index, err := first.Propose(t.Context(), former, one, []byte("one"))
		require.NoError(t, err)
		_, err = second.Propose(t.Context(), nil, api.NewRequestID(), []byte("not the leader"))
		require.ErrorIs(t, err, leaderelection.ErrNotLeader)

		// Simulate an update of the former leader that reaches the log after another candidate has become
		// leader.
		require.NoError(t, first.Resign())
		require.Greater(t, second.waitForLeadership(t), former.Token())
		_, err = raftlog.ProposeGuarded(t.Context(), h.nodeOf(h.peers[0]), "e", former.Token(), api.NewRequestID(), []byte("late"))
		require.ErrorIs(t, err, leaderelection.ErrNotLeader)
		again, err := second.Propose(t.Context(), second.Current().Leadership, one, []byte("one"))
		require.NoError(t, err)
		require.Equal(t, index, again, "the update was applied by the previous leader")
		h.requireUpdates(t, h.peers, "one")
	})
}

// TestElectionPropose_RejectsUpdateOfFormerLeadership checks that Election.Propose rejects an update of a
// former leadership when the same candidate leads again.
func TestElectionPropose_RejectsUpdateOfFormerLeadership(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.otherPeers(h.waitForLeader(t))[0]
		c := startLeader(t, h.nodeOf(p), "e")
		former := c.Current().Leadership
		heal := h.isolate(p)
		waitFor(t, "the leadership is lost", func() bool { return former.Err() != nil })
		time.Sleep(10 * time.Second) // wait until the candidate is removed from the queue
		heal()
		waitFor(t, "the candidate leads again", c.isLeader)
		l := c.Current().Leadership
		require.Greater(t, l.Token(), former.Token())

		_, err := c.Propose(t.Context(), former, api.NewRequestID(), []byte("late"))
		require.ErrorIs(t, err, leaderelection.ErrNotLeader)
		require.ErrorIs(t, err, former.Err(), "the error must contain the reason why the leadership has ended")
		_, err = raftlog.ProposeGuarded(t.Context(), h.nodeOf(p), "e", former.Token(), api.NewRequestID(), []byte("late"))
		require.ErrorIs(t, err, leaderelection.ErrNotLeader)
		_, err = c.Propose(t.Context(), l, api.NewRequestID(), []byte("in time"))
		require.NoError(t, err)
		h.requireUpdates(t, h.peers, "in time")
	})
}

// blockingMachine is a state machine that waits, before it applies an update that is a key of released, until
// the channel of this key is closed.
type blockingMachine struct {
	raftlog.StateMachine
	released map[string]chan struct{}
}

func (s blockingMachine) Apply(entries []api.Entry, through uint64) error {
	for _, e := range entries {
		if c := s.released[string(e.Data)]; c != nil {
			<-c
		}
	}
	return s.StateMachine.Apply(entries, through)
}

// TestSync_WaitsForEarlierEntries checks that Sync waits until all entries that were committed before the call
// are applied, and does not wait for later entries.
func TestSync_WaitsForEarlierEntries(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.otherPeers(h.waitForLeader(t))[0]
		other := h.otherPeers(p)[0]
		require.NoError(t, h.stopPeer(p))
		released := map[string]chan struct{}{"before": make(chan struct{}), "after": make(chan struct{})}
		h.startPeer(p, func(c *raftlog.Config) { c.StateMachine = blockingMachine{c.StateMachine, released} })
		defer close(released["after"])
		h.syncPeer(t, p)
		h.proposeAll(t, other, "before")
		synced := make(chan error, 1)
		go func() { synced <- h.nodeOf(p).Sync(contextWithin(t, time.Minute)) }()
		time.Sleep(100 * time.Millisecond)
		h.proposeAll(t, other, "after")
		time.Sleep(time.Second)
		require.Empty(t, synced)
		close(released["before"])
		time.Sleep(time.Second)
		require.Len(t, synced, 1, "Sync waits for another update")
		require.NoError(t, <-synced)
		require.Equal(t, []string{"before"}, h.machine(p).recordedUpdates())
	})
}
