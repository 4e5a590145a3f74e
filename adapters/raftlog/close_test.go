package raftlog_test

// A closed node must leave no goroutine: TestMain runs goleak after all tests, and
// testing/synctest fails if goroutines remain when a bubble ends.

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestClose_LeaderHandsOverLog checks that the other peers do not wait for an election timeout when the
// leader of the log is closed.
func TestClose_LeaderHandsOverLog(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		for range 4 {
			leader := h.waitForLeader(t)
			start := time.Now()
			require.NoError(t, h.stopPeer(leader))
			h.proposeAll(t, h.otherPeers(leader)[0], "x")
			require.Less(t, time.Since(start), 150*time.Millisecond, "the hand-over takes longer than an election timeout")
			h.startPeer(leader)
			h.syncPeer(t, leader)
		}
	})
}

// TestClose_EndsPendingCalls checks that Close, called twice at the same time, ends proposals, candidacies,
// subscriptions and snapshots in progress, and that each of them returns its documented error.
func TestClose_EndsPendingCalls(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		n := h.nodeOf(leader)
		h.proposeAll(t, leader, "a")
		c := startLeader(t, n, "e")
		idle, err := raftlog.NewElection(n, "f")
		require.NoError(t, err)
		started, release := make(chan struct{}), make(chan struct{})
		h.machine(leader).beforeWrite(func(io.Writer) error { close(started); <-release; return nil })
		for _, p := range h.otherPeers(leader) {
			require.NoError(t, h.stopPeer(p))
		}
		s := n.Subscribe(t.Context(), 1)
		results := make(chan error, 12)
		for range 5 {
			go func() { _, err := n.Propose(t.Context(), api.NewRequestID(), []byte("x")); results <- err }()
			go func() { results <- n.Sync(t.Context()) }()
		}
		go func() { _, err := n.Compact(t.Context()); results <- err }()
		<-started
		go func() { results <- raftlog.DeleteElection(n, "g") }()
		synctest.Wait()
		closed := make(chan error, 2)
		go func() { closed <- n.Close() }()
		go func() { closed <- n.Close() }()
		time.Sleep(time.Second)
		close(release) // let the state machine write its snapshot, for which Close waits
		require.NoError(t, <-closed)
		require.NoError(t, <-closed)
		for range 12 {
			err := <-results
			require.True(t, errors.Is(err, api.ErrClosed) || errors.Is(err, api.ErrUnknownOutcome), "%v", err)
		}
		c.waitForEnd(t, api.ErrClosed)
		require.ErrorIs(t, c.err, leaderelection.ErrConnClosed)
		for range s.Events() {
		}
		require.ErrorIs(t, idle.ElectLeader(), api.ErrClosed)
		require.ErrorIs(t, raftlog.DeleteElection(n, "e"), leaderelection.ErrConnClosed)
		_, err = raftlog.Candidates(t.Context(), n, "e")
		require.ErrorIs(t, err, leaderelection.ErrConnClosed)
		require.NotEmpty(t, n.Info().Fault)
		_ = n.PrunableFiles()
	})
}

// TestClose_SucceedsImmediatelyAfterOpen checks that a peer can be closed right after Open, before it has
// contacted other peers, and can be opened again.
func TestClose_SucceedsImmediatelyAfterOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, 3)
		for range 5 {
			for _, p := range h.peers {
				h.startPeer(p)
				require.NoError(t, h.stopPeer(p))
			}
		}
		h.startAll()
		h.proposeAll(t, h.peers[0], "x")
	})
}

// TestClose_TwoPeersHandOverOnce checks that two peers that are closed at the same time hand over the
// leadership of the log to each other only once.
func TestClose_TwoPeersHandOverOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, 3)
		nodes := h.startAll(func(c *raftlog.Config) { c.ElectionTimeout, c.Heartbeat = time.Second, 200*time.Millisecond })
		time.Sleep(5 * time.Second)
		first := 0
		for nodes[first].Info().Role != "leader" {
			first++
		}
		term := nodes[first].Info().Term
		second, third := nodes[(first+1)%3], nodes[(first+2)%3]
		require.NoError(t, third.Close())
		closed := make(chan error, 1)
		go func() { closed <- nodes[first].Close() }()
		for second.Info().Role != "leader" {
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, second.Close())
		require.NoError(t, <-closed)
		require.LessOrEqual(t, max(nodes[first].Info().Term, second.Info().Term), term+2)
	})
}

// TestClose_DoesNotSuspendLeadershipOfOtherPeer checks that Close does not hand over the log to a peer whose
// candidate leads an election if there is a third peer, because the hand-over would suspend that candidate.
func TestClose_DoesNotSuspendLeadershipOfOtherPeer(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		for range 6 {
			p := h.waitForLeader(t)
			q := h.otherPeers(p)[0]
			c := startLeader(t, h.nodeOf(q), "e")
			l := c.Current().Leadership
			require.NoError(t, h.stopPeer(p))
			h.waitForLeader(t)
			require.NoError(t, l.Err())
			require.False(t, c.wasSuspended())
			require.NoError(t, c.Resign())
			<-c.ended
			h.startPeer(p)
			require.NoError(t, h.nodeOf(p).Sync(contextWithin(t, 60e9)))
		}
	})
}
