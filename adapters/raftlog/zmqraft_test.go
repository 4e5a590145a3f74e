package raftlog_test

// This file lists the known defects of ØMQ Raft 0.7.1, which have the numbers Z1 to Z13. For each defect it
// contains or names the tests which show that package raftlog does not have the defect.

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// Defect Z1 of ØMQ Raft: streams, and peers that joined, could not continue after a compaction.
// TestSubscribe_DeliversSnapshotOfCompactedEntries covers this.

// Defect Z2 of ØMQ Raft: a stream did not report whether its reader had closed it.
// TestSubscription_EndsWithContextCloseOrNode covers this.

// Defect Z3 of ØMQ Raft: the tool that changes the peers repeated its request without end after it had
// succeeded. TestConfig_AddsAndRemovesPeers of the command raftlog covers this.

// TestPropose_ReturnsAfterFailedWrite checks that Propose does not wait forever after a write to the disk has
// failed. This covers defect Z4 of ØMQ Raft.
func TestPropose_ReturnsAfterFailedWrite(t *testing.T) {
	runCluster(t, 1, func(t *testing.T, h *harness) {
		p, broken := h.peers[0], errors.New("broken")
		h.proposeAll(t, p, "a")
		h.disks[p.ID].FailWith(h.disks[p.ID].Ops()+1, broken)
		_, err := h.nodeOf(p).Propose(t.Context(), api.NewRequestID(), []byte("b"))
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		require.ErrorIs(t, err, api.ErrFault)
		require.ErrorIs(t, err, broken)
	})
}

// Defect Z5 of ØMQ Raft: a peer applied a request that it had rejected.
// TestPropose_RejectsInvalidIDAndTooMuchData and TestChangePeers_RejectsInvalidChanges cover this.

// TestLeader_StepsDownWithoutMajority checks that an isolated leader of the log, and the leader of an election
// at the same peer, lose their leaderships in time. This covers defect Z6 of ØMQ Raft.
func TestLeader_StepsDownWithoutMajority(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		c := startLeader(t, h.nodeOf(leader), "e")
		h.isolate(leader)
		start := time.Now()
		waitFor(t, "the candidacy is suspended", func() bool { return !c.isLeader() })
		require.LessOrEqual(t, time.Since(start), 200*time.Millisecond)
		waitFor(t, "the leader of the log steps down", func() bool { return h.nodeOf(leader).Info().Role != "leader" })
		require.LessOrEqual(t, time.Since(start), 500*time.Millisecond)
	})
}

// TestSync_FailsAtPartitionedPeer checks that a partitioned peer does not complete a linearizable read, and
// does not cause an election when it returns. This covers defect Z7 of ØMQ Raft. TestClose_LeaderHandsOverLog
// and TestSubscribe_DeliversEveryEntry cover the other parts of this defect: there was no hand-over, and
// followers served no entries.
func TestSync_FailsAtPartitionedPeer(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.otherPeers(h.waitForLeader(t))[0]
		heal := h.isolate(p)
		h.proposeAll(t, h.otherPeers(p)[0], "b")
		leader := h.waitForLeader(t)
		term := h.nodeOf(leader).Info().Term
		require.Error(t, h.nodeOf(p).Sync(contextWithin(t, time.Second)), "the peer cannot confirm its state")
		time.Sleep(5 * time.Second)
		heal()
		h.syncPeer(t, p)
		require.Equal(t, []string{"b"}, h.machine(p).recordedUpdates())
		time.Sleep(time.Second)
		require.Equal(t, term, h.nodeOf(leader).Info().Term)
	})
}

// Defect Z8 of ØMQ Raft: one of two callers that proposed the same update received no reply.
// TestPropose_SameIDHasOneOutcome of internal/core covers this.

// TestLogs_ConvergeWithoutFullComparison checks that a former leader with two thousand uncommitted entries
// receives the entries of the new leader within seconds, although each message takes 10 ms: the peers find the
// first different entry without comparing all entries. This covers defect Z9 of ØMQ Raft.
func TestLogs_ConvergeWithoutFullComparison(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		h.proposeAll(t, h.peers[0], "a")
		leader := h.waitForLeader(t)
		heal := h.isolate(leader)
		for i := range 2000 { // the isolated leader appends these entries only to its own log
			go func() {
				_, _ = h.nodeOf(leader).Propose(contextWithin(t, time.Minute), api.NewRequestID(), fmt.Append(nil, i))
			}()
		}
		waitFor(t, "the leader has appended the updates", func() bool { return h.nodeOf(leader).Info().LastIndex > 2000 })
		for _, u := range numberedUpdates("b", 10) {
			proposeUntilKnown(t, h.nodeOf(h.otherPeers(leader)[0]), api.NewRequestID(), u)
		}
		for _, p := range h.peers { // delay each message by 10 ms, so that a request and its reply take 20 ms
			for _, q := range h.peers {
				h.net.Delay(p.Addr, q.Addr, 10*time.Millisecond)
			}
		}
		time.Sleep(time.Second)
		start := time.Now()
		heal()
		waitFor(t, "the peer has the log of the others", func() bool {
			all := h.machine(leader).recordedUpdates()
			return len(all) >= 11 && slices.Equal(all[1:11], numberedUpdates("b", 10))
		})
		require.Less(t, time.Since(start), 3*time.Second)
	})
}

// Defect Z10 of ØMQ Raft: a new leader completed a change of the peers only with the next update.
// TestChangePeers_SucceedsDespiteLeaderCrash, which proposes no update before the change is complete, covers
// this.

// Defect Z11 of ØMQ Raft: request IDs within the window were removed to make room for others.
// TestMaxRequestIDs_RejectsFurtherUpdates covers this.

// Defect Z12 of ØMQ Raft: peers sent the secret unencrypted, as a label. TestSecret_RequiredForAccess,
// TestCertificates_RequiredForAccess, and the tests of internal/link cover this.

// TestNode_StopsIfItsLogLostEntries checks that a peer whose log lacks entries that it has acknowledged stops
// with ErrFault, without ending the process or stopping other peers. This covers defect Z13 of ØMQ Raft.
func TestNode_StopsIfItsLogLostEntries(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		p := h.otherPeers(leader)[0]
		require.NoError(t, h.stopPeer(p))
		old := h.disks[p.ID].Crash() // the disk before the updates
		h.disks[p.ID] = old.Crash()
		h.startPeer(p)
		h.proposeAll(t, leader, numberedUpdates("a", 20)...)
		h.requireUpdates(t, h.peers, numberedUpdates("a", 20)...)
		require.NoError(t, h.stopPeer(p))
		h.disks[p.ID] = old.Crash()
		n := h.startPeer(p)
		waitFor(t, "the peer has stopped", func() bool { return errors.Is(n.Err(), api.ErrFault) })
		h.proposeAll(t, leader, "b")
		h.requireUpdates(t, h.otherPeers(p), append(numberedUpdates("a", 20), "b")...)
	})
}
