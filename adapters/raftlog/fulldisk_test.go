package raftlog_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// fillDisk proposes updates until the node rejects even an update of one byte. It returns the updates in
// before, followed by the new updates that were applied.
func fillDisk(t *testing.T, n *raftlog.Node, before ...string) (applied []string) {
	t.Helper()
	applied = before
	size := 1000
	for i := range 1000 {
		update := fmt.Sprintf("%0*d", size, i)
		_, err := n.Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte(update))
		if errors.Is(err, api.ErrNoSpace) {
			require.NotErrorIs(t, err, api.ErrUnknownOutcome)
			if size == 1 {
				return applied
			}
			size = 1 // fill the remaining space with short updates
			continue
		}
		require.NoError(t, err)
		applied = append(applied, update)
	}
	t.Fatal("the disk does not become full")
	return nil
}

// TestFullDisks_DoNotStopPeers checks that disks that become full at the same time, because they have the same
// size, stop neither peers nor elections, and that updates are accepted again when there is space.
func TestFullDisks_DoNotStopPeers(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		c := startLeader(t, h.nodeOf(leader), "e")
		for _, p := range h.peers { // enough space for small files, but not for a segment
			h.disks[p.ID].SetSpace(h.disks[p.ID].Used() + 16<<10)
		}
		applied := fillDisk(t, h.nodeOf(h.otherPeers(leader)[0]))
		require.Greater(t, len(applied), 40, "most of a segment of 64 KiB is used")
		require.True(t, c.isLeader())
		other := startCandidate(t, h.nodeOf(h.otherPeers(leader)[0]), "e")
		require.NoError(t, c.Resign())
		other.waitForLeadership(t)

		h.restart(t, leader)
		leader = h.waitForLeader(t)
		require.NoError(t, h.nodeOf(h.otherPeers(leader)[0]).Sync(contextWithin(t, time.Minute)))
		applied = fillDisk(t, h.nodeOf(leader), applied...) // fill the space that may remain at the new leader
		// Fill the whole segment with operations on elections. The peers must not stop then.
		for i := range 300 {
			if err := raftlog.DeleteElection(h.nodeOf(leader), fmt.Sprint("job ", i), raftlog.WithContext(contextWithin(t, 300*time.Millisecond))); err != nil {
				break
			}
			require.Less(t, i, 299)
		}
		time.Sleep(10 * time.Second)
		for _, n := range h.runningNodes() {
			require.NoError(t, n.Err())
		}
		for _, p := range h.peers {
			h.disks[p.ID].SetSpace(-1)
		}
		time.Sleep(2 * time.Second)
		h.proposeAll(t, h.peers[0], "there is space")
		h.requireUpdates(t, h.peers, append(applied, "there is space")...)
	})
}

// TestFullDisk_DoesNotStopLeader checks that the leader of the log continues when its disk is full, rejects
// updates, and accepts them again when there is space.
func TestFullDisk_DoesNotStopLeader(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		h.disks[leader.ID].SetSpace(0)
		applied := fillDisk(t, h.nodeOf(leader))
		require.NoError(t, h.nodeOf(leader).Err())
		h.disks[leader.ID].SetSpace(-1)
		time.Sleep(2 * time.Second)
		h.proposeAll(t, leader, "there is space")
		h.requireUpdates(t, h.peers, append(applied, "there is space")...)
	})
}

// TestFullDisk_DoesNotStopFollower checks that a follower whose disk is full does not stop or delay other
// peers, still votes, and receives the missing entries when there is space.
func TestFullDisk_DoesNotStopFollower(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		p := h.otherPeers(leader)[0]
		h.disks[p.ID].SetSpace(0)
		var updates []string
		for i := range 200 {
			updates = append(updates, fmt.Sprintf("%01000d", i))
		}
		h.proposeAll(t, leader, updates...)
		require.NoError(t, h.nodeOf(p).Err())
		time.Sleep(5 * time.Second)
		recorded := len(h.machine(p).recordedUpdates())
		require.Less(t, recorded, 200)

		// After the crash of the leader, the third peer is elected by the peer whose disk is full. It cannot
		// commit, because a majority needs that disk.
		h.crashPeer(leader)
		second := h.otherPeers(leader, p)[0]
		waitFor(t, "the other peer is elected", func() bool { return h.nodeOf(second).Info().Role == "leader" })
		require.Equal(t, recorded, len(h.machine(p).recordedUpdates()))
		_, err := h.nodeOf(second).Propose(contextWithin(t, 5*time.Second), api.NewRequestID(), []byte("no majority has space"))
		require.Error(t, err)

		h.disks[p.ID].SetSpace(-1)
		h.waitForLeader(t)
		h.startPeer(leader)
		h.proposeAll(t, leader, "there is space")
		for _, p := range h.peers {
			h.syncPeer(t, p)
			all := h.machine(p).recordedUpdates()
			require.Equal(t, updates, all[:200])
			require.Equal(t, "there is space", all[len(all)-1])
		}
	})
}

// TestFullDisk_PeerStartsWhenThereIsSpace checks that a peer that starts while its disk is full returns
// ErrNoSpace and does not report damaged data, and that it starts when there is space.
func TestFullDisk_PeerStartsWhenThereIsSpace(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		h.proposeAll(t, leader, "first")
		p := h.otherPeers(leader)[0]
		require.NoError(t, h.stopPeer(p))
		h.disks[p.ID].SetSpace(0)
		_, err := h.openPeer(p)
		require.ErrorIs(t, err, api.ErrNoSpace)
		require.NotErrorIs(t, err, api.ErrFault)
		h.disks[p.ID].SetSpace(-1)
		h.startPeer(p)
		h.requireUpdates(t, h.peers, "first")
	})
}
