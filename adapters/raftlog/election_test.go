package raftlog_test

// This file contains the tests of elections that only this package needs; conformance_test.go
// runs the tests that all implementations of elections share.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestElections_HaveSeparateLeaders checks that several elections have different leaders, which depend neither
// on each other nor on the leader of the log.
func TestElections_HaveSeparateLeaders(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		names := []string{"a", "b", "c"}
		candidates := map[string]*candidate{}
		for i, name := range names {
			for k := range 3 {
				p := h.peers[(i+k)%3]
				c := startCandidate(t, h.nodeOf(p), name, raftlog.WithName(p.ID+" for "+name))
				if k == 0 {
					candidates[name] = c
					c.waitForLeadership(t)
				}
				waitFor(t, "the candidate is in the queue", func() bool {
					line, err := raftlog.Candidates(t.Context(), h.nodeOf(h.peers[0]), name)
					return err == nil && len(line) == k+1
				})
			}
		}
		for i, name := range names {
			require.True(t, candidates[name].isLeader())
			line, err := raftlog.Candidates(t.Context(), h.nodeOf(h.peers[i]), name)
			require.NoError(t, err)
			require.Equal(t, candidates[name].ID(), line[0].ID)
			require.Equal(t, h.peers[i].ID+" for "+name, line[0].Name)
			require.Equal(t, candidates[name].Current().Leadership.Token(), line[0].Token)
			require.Equal(t, h.peers[(i+1)%3].ID+" for "+name, line[1].Name)
		}
		// Deleting one election does not affect the others.
		deleteElection(t, h.nodeOf(h.peers[1]), "a")
		candidates["a"].waitForEnd(t, leaderelection.ErrElectionOver)
		require.True(t, candidates["b"].isLeader())
		require.NoError(t, candidates["b"].Resign())
		require.True(t, candidates["c"].isLeader())
	})
}

// TestTokens_IncreaseWithEachLeadership checks that each leadership has a greater token than the one before,
// also after a resignation, crashes of all peers, a restart of the election, and snapshots.
func TestTokens_IncreaseWithEachLeadership(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		last := int64(0)
		add := func(token int64) {
			t.Helper()
			require.Greater(t, token, last)
			last = token
		}
		c := startCandidate(t, h.nodeOf(h.peers[0]), "e")
		add(c.waitForLeadership(t))
		next := startCandidate(t, h.nodeOf(h.peers[1]), "e")
		require.NoError(t, c.Resign())
		add(next.waitForLeadership(t))
		leader := h.waitForLeader(t)
		for _, p := range append([]api.Peer{leader}, h.otherPeers(leader)...) {
			h.crashPeer(p)
		}
		h.startAll()
		add(startCandidate(t, h.nodeOf(h.peers[2]), "e").waitForLeadership(t))
		deleteElection(t, h.nodeOf(h.peers[0]), "e")
		restartElection(t, h.nodeOf(h.peers[1]), "e")
		add(startCandidate(t, h.nodeOf(h.peers[0]), "e").waitForLeadership(t))
		for _, p := range h.peers {
			h.compact(t, p)
			require.NoError(t, h.stopPeer(p))
		}
		h.startAll()
		add(startCandidate(t, h.nodeOf(h.peers[1]), "e").waitForLeadership(t))
	})
}

// TestRestart_RemovesCandidateOfFormerProcess checks that the candidate of the previous process of a peer is
// removed from the queue soon after the peer was restarted.
func TestRestart_RemovesCandidateOfFormerProcess(t *testing.T) {
	for _, stop := range []func(*harness, api.Peer){
		func(h *harness, p api.Peer) { h.crashPeer(p) },
		func(h *harness, p api.Peer) { _ = h.stopPeer(p) },
	} {
		runCluster(t, 3, func(t *testing.T, h *harness) {
			first := startCandidate(t, h.nodeOf(h.peers[0]), "e")
			token := first.waitForLeadership(t)
			second := startCandidate(t, h.nodeOf(h.peers[1]), "e")
			waitFor(t, "the candidate is in the queue", func() bool {
				line, err := raftlog.Candidates(t.Context(), h.nodeOf(h.peers[1]), "e")
				return err == nil && len(line) == 2
			})
			stop(h, h.peers[0])
			first.waitForEnd(t, leaderelection.ErrConnClosed)
			h.startPeer(h.peers[0])
			start := time.Now()
			again := startCandidate(t, h.nodeOf(h.peers[0]), "e")
			require.Greater(t, second.waitForLeadership(t), token)
			require.Less(t, time.Since(start), 1200*time.Millisecond)
			require.False(t, again.isLeader())
			require.NoError(t, second.Resign())
			again.waitForLeadership(t)
		})
	}
}

// TestElection_TellsSuccessorHowLeaderLeft checks that the successor of a leader learns whether the leader has
// resigned.
func TestElection_TellsSuccessorHowLeaderLeft(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		all := []*candidate{startLeader(t, h.nodeOf(h.peers[0]), "e")}
		require.NoError(t, all[0].Current().FormerErr)
		for i, p := range h.peers[1:] {
			all = append(all, startCandidate(t, h.nodeOf(p), "e"))
			waitFor(t, "the candidate is in the queue", func() bool { return all[i+1].Current().NowFollowing == all[i].ID() })
			require.Equal(t, i == 0, all[i+1].Current().Next)
		}
		require.NoError(t, all[0].Resign())
		all[1].waitForLeadership(t)
		require.Equal(t, leaderelection.ErrResigned, all[1].Current().FormerErr)
		waitFor(t, "the last candidate is next", func() bool { return all[2].Current().Next })
		defer h.isolate(h.peers[1])()
		all[2].waitForLeadership(t)
		require.Equal(t, leaderelection.ErrLeaseExpired, all[2].Current().FormerErr)
	})
}

// TestDeleteElection_EndsForAllCandidates checks that DeleteElection ends the candidacies of all candidates,
// that none of them is in the queue after RestartElection, and that the error wraps ErrUnconfirmed if no
// majority is reachable.
func TestDeleteElection_EndsForAllCandidates(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		var all []*candidate
		for _, p := range h.peers {
			all = append(all, startCandidate(t, h.nodeOf(p), "e"))
		}
		waitFor(t, "a leader", func() bool { return slices.ContainsFunc(all, (*candidate).isLeader) })
		for range 2 {
			deleteElection(t, h.nodeOf(h.peers[2]), "e")
		}
		for _, c := range all {
			c.waitForEnd(t, leaderelection.ErrElectionOver)
		}
		_, err := raftlog.Candidates(t.Context(), h.nodeOf(h.peers[2]), "e")
		require.ErrorIs(t, err, leaderelection.ErrElectionOver)
		late := startCandidate(t, h.nodeOf(h.peers[0]), "e")
		late.waitForEnd(t, leaderelection.ErrElectionOver)
		for range 2 {
			restartElection(t, h.nodeOf(h.peers[0]), "e")
		}
		time.Sleep(time.Second)
		line, err := raftlog.Candidates(t.Context(), h.nodeOf(h.peers[0]), "e")
		require.NoError(t, err)
		require.Empty(t, line, "candidates of the deleted election do not return")
		c := startLeader(t, h.nodeOf(h.peers[0]), "e")
		// A caller at a peer without a majority receives ErrUnconfirmed, and the election continues.
		heal := h.isolate(h.peers[2])
		err = raftlog.DeleteElection(h.nodeOf(h.peers[2]), "e", raftlog.WithContext(contextWithin(t, time.Second)))
		require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
		heal()
		require.True(t, c.isLeader())
		require.NoError(t, h.stopPeer(h.peers[1]))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, raftlog.DeleteElection(h.nodeOf(h.peers[0]), "e", raftlog.WithContext(ctx)), leaderelection.ErrUnconfirmed)
	})
}

// TestDeleteElection_AllowsNewCandidatesAfterWindow checks that a new candidate can lead an ended election
// after the deduplication window, even at a restarted peer, and that a second DeleteElection writes no entry.
func TestDeleteElection_AllowsNewCandidatesAfterWindow(t *testing.T) {
	const window = 2 * time.Minute
	briefly := func(c *raftlog.Config) { c.Window = window }
	runCluster(t, 3, func(t *testing.T, h *harness) {
		c := startCandidate(t, h.nodeOf(h.peers[0]), "e")
		token := c.waitForLeadership(t)
		deleteElection(t, h.nodeOf(h.peers[1]), "e")
		ended := time.Now()
		<-c.ended
		time.Sleep(window / 4)
		last := h.nodeOf(h.waitForLeader(t)).Info().CommitIndex
		deleteElection(t, h.nodeOf(h.peers[1]), "e")
		require.Equal(t, last, h.nodeOf(h.waitForLeader(t)).Info().CommitIndex)
		h.restart(t, h.peers[2], slowElections, briefly)
		n := h.nodeOf(h.peers[2])
		require.NoError(t, n.Sync(contextWithin(t, time.Minute)))
		over := func() bool {
			_, err := raftlog.Candidates(t.Context(), n, "e")
			return errors.Is(err, leaderelection.ErrElectionOver)
		}
		for over() {
			require.Less(t, time.Since(ended), window+2*time.Minute)
			time.Sleep(time.Second)
		}
		require.GreaterOrEqual(t, time.Since(ended), window)
		require.Greater(t, startCandidate(t, n, "e").waitForLeadership(t), token)
	}, slowElections, briefly)
}

// TestDeleteElection_ReturnsErrUnconfirmedIfRequestIsStale checks that DeleteElection returns ErrUnconfirmed if
// the log rejects its request as too old, because an earlier attempt may have been applied.
func TestDeleteElection_ReturnsErrUnconfirmedIfRequestIsStale(t *testing.T) {
	runCluster(t, 1, func(t *testing.T, h *harness) {
		err := raftlog.ChangeError(t.Context(), h.nodeOf(h.peers[0]), fmt.Errorf("%w", api.ErrStale))
		require.ErrorIs(t, err, leaderelection.ErrUnconfirmed)
		require.ErrorIs(t, err, api.ErrStale)
	})
}

// TestDeleteElection_AtOutdatedPeerEndsRestartedElection checks that DeleteElection ends a restarted election
// even if it is called at a peer that has not applied the restart yet.
func TestDeleteElection_AtOutdatedPeerEndsRestartedElection(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.otherPeers(h.waitForLeader(t))[0]
		other := h.otherPeers(p)[0]
		deleteElection(t, h.nodeOf(other), "e")
		h.syncPeer(t, p)
		heal := h.isolate(p)
		restartElection(t, h.nodeOf(other), "e")
		c := startLeader(t, h.nodeOf(other), "e")
		heal()
		deleteElection(t, h.nodeOf(p), "e")
		c.waitForEnd(t, leaderelection.ErrElectionOver)
	})
}

// TestDeleteElection_EndsElectionDespiteBlockedStateMachine checks that DeleteElection at a peer whose state
// machine blocks ends the election, and returns only after the state machine has continued.
func TestDeleteElection_EndsElectionDespiteBlockedStateMachine(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.otherPeers(h.waitForLeader(t))[0]
		c := startLeader(t, h.nodeOf(h.otherPeers(p)[0]), "e")
		require.NoError(t, h.stopPeer(p))
		release := make(chan struct{})
		h.startPeer(p, func(c *raftlog.Config) {
			c.StateMachine = blockingMachine{c.StateMachine, map[string]chan struct{}{"x": release}}
		})
		h.proposeAll(t, h.otherPeers(p)[0], "x")
		deleted := make(chan error, 1)
		go func() {
			deleted <- raftlog.DeleteElection(h.nodeOf(p), "e", raftlog.WithContext(contextWithin(t, time.Hour)))
		}()
		select {
		case <-c.ended:
		case <-time.After(time.Minute):
			t.Error("the candidacy does not end")
		}
		require.Empty(t, deleted)
		close(release)
		require.NoError(t, <-deleted)
		require.ErrorIs(t, c.err, leaderelection.ErrElectionOver)
	})
}

// TestDeleteElection_EndsCandidacyDespiteFastRestart checks that a candidacy ends if other peers have ended and
// restarted the election before the candidate's peer has processed the end.
func TestDeleteElection_EndsCandidacyDespiteFastRestart(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.otherPeers(h.waitForLeader(t))[0]
		other := h.otherPeers(p)[0]
		c := startLeader(t, h.nodeOf(p), "e")
		release := h.nodeOf(p).BlockLoop()
		deleteElection(t, h.nodeOf(other), "e")
		restartElection(t, h.nodeOf(other), "e")
		release()
		c.waitForEnd(t, leaderelection.ErrElectionOver)
	})
}

// TestLeadership_ExpiresWhileLoopIsBlocked checks that a leadership expires at its deadline while the loop of
// its node is blocked, and that the candidate leads again, without a smaller token, when the loop continues.
func TestLeadership_ExpiresWhileLoopIsBlocked(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.otherPeers(h.waitForLeader(t))[0]
		c := startCandidate(t, h.nodeOf(p), "e")
		token := c.waitForLeadership(t)
		for held := 150 * time.Millisecond; held < 196*time.Millisecond; held += 3 * time.Millisecond {
			l := c.Current().Leadership
			require.NotNil(t, l)
			release := h.nodeOf(p).BlockLoop()
			start := time.Now()
			require.LessOrEqual(t, l.Deadline().Sub(start), 200*time.Millisecond)
			time.Sleep(held)
			if time.Now().After(l.Deadline()) {
				require.Error(t, l.Err(), "the leadership expires without the loop")
				require.Equal(t, leaderelection.Suspended, c.Current().Role)
			}
			release()
			require.GreaterOrEqual(t, c.waitForLeadership(t), token)
			token = c.Current().Leadership.Token()
			time.Sleep(time.Second)
		}
		require.True(t, c.wasSuspended())
		second := startCandidate(t, h.nodeOf(h.otherPeers(p)[0]), "e")
		time.Sleep(time.Second)
		l := c.Current().Leadership
		release := h.nodeOf(p).BlockLoop()
		require.Greater(t, second.waitForLeadership(t), token)
		require.Error(t, l.Err(), "the leadership has ended before another candidate leads")
		release()
	})
}

// TestFailover_CompletesWithinDocumentedLimit checks that, after the peer of a leader was isolated, another
// candidate leads within the documented time, whether or not the isolated peer also led the log. The election
// timeout is 200 ms, in the fake time of testing/synctest.
func TestFailover_CompletesWithinDocumentedLimit(t *testing.T) {
	runCluster(t, 5, func(t *testing.T, h *harness) {
		for range 4 {
			for _, leadsLog := range []bool{false, true} {
				p := h.waitForLeader(t)
				if !leadsLog {
					p = h.otherPeers(p)[0]
				}
				first := startLeader(t, h.nodeOf(p), "e")
				second := startCandidate(t, h.nodeOf(h.otherPeers(p)[1]), "e")
				time.Sleep(time.Second)
				heal := h.isolate(p)
				start := time.Now()
				second.waitForLeadership(t)
				took := time.Since(start)
				require.GreaterOrEqual(t, took, 100*time.Millisecond)
				if leadsLog { // the election of another leader of the log takes up to two timeouts
					require.Less(t, took, 900*time.Millisecond)
				} else {
					require.Less(t, took, 280*time.Millisecond)
				}
				heal()
				require.NoError(t, second.Resign())
				first.waitForLeadership(t)
				require.NoError(t, first.Resign())
			}
		}
	})
}

// TestResign_ReturnsImmediatelyBeforeJoining checks that ElectLeader and Resign do not wait for the removal of
// a candidate whose context was done before the candidate requested to join.
func TestResign_ReturnsImmediatelyBeforeJoining(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		h.waitForLeader(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e, err := raftlog.NewElection(h.nodeOf(h.peers[0]), "e", raftlog.WithContext(ctx))
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, e.ElectLeader())
		require.Zero(t, time.Since(start))
		require.NoError(t, e.Resign())
	})
}

// TestResign_ReturnsNilOnlyIfCandidateCannotRejoin checks that Resign does not return nil while an expired
// candidate can be queued again, because its peer has requested this before the resignation.
func TestResign_ReturnsNilOnlyIfCandidateCannotRejoin(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		l := h.waitForLeader(t)
		p := h.otherPeers(l)[0]
		c := startLeader(t, h.nodeOf(p), "e")
		isQueued := func(at api.Peer) bool {
			all, err := raftlog.Candidates(t.Context(), h.nodeOf(at), "e")
			require.NoError(t, err)
			return slices.ContainsFunc(all, func(i leaderelection.CandidateInfo) bool { return i.ID == c.ID() })
		}
		heal := h.isolate(p)
		waitFor(t, "the candidate has expired", func() bool { return !isQueued(l) })
		heal()
		waitFor(t, "the peer has applied the removal of the candidate", func() bool { return !isQueued(p) })
		h.net.Delay(p.Addr, l.Addr, time.Second)
		time.Sleep(700 * time.Millisecond) // wait for a heartbeat and a tick, after which the request is in flight
		if c.Resign() == nil {
			for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
				require.False(t, isQueued(l))
			}
		}
		waitFor(t, "the candidate has left", func() bool { return !isQueued(l) && c.Resign() == nil })
	}, func(c *raftlog.Config) { c.ElectionTimeout, c.Heartbeat = 4*time.Second, 400*time.Millisecond })
}

// TestResign_ReturnsErrUnconfirmedWithoutMajority checks that Resign returns ErrUnconfirmed in time while there
// is no majority and other candidates change the queue, because the request to join may still be applied.
// Resign must return nil later, when a majority has confirmed the removal.
func TestResign_ReturnsErrUnconfirmedWithoutMajority(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.waitForLeader(t)
		heal := h.isolate(p)
		var all []*candidate
		for range 20 {
			all = append(all, startCandidate(t, h.nodeOf(p), "e"))
		}
		synctest.Wait()
		start := time.Now()
		var resigned sync.WaitGroup
		for _, c := range all {
			resigned.Go(func() { assert.ErrorIs(t, c.Resign(), leaderelection.ErrUnconfirmed) })
		}
		resigned.Wait()
		require.LessOrEqual(t, time.Since(start), 2*time.Second)
		time.Sleep(time.Minute)
		require.ErrorIs(t, all[0].Resign(), leaderelection.ErrUnconfirmed)
		heal()
		h.waitForLeader(t)
		for _, c := range all {
			waitFor(t, "the resignation is confirmed", func() bool { return c.Resign() == nil })
		}
	})
}

// TestCandidate_EndsDespiteBlockedStateMachine checks that a blocked state machine delays neither the
// resignation of a candidate at its peer, nor the return of ElectLeader in an ended election.
func TestCandidate_EndsDespiteBlockedStateMachine(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.otherPeers(h.waitForLeader(t))[0]
		deleteElection(t, h.nodeOf(p), "over")
		require.NoError(t, h.stopPeer(p))
		release := make(chan struct{})
		defer close(release)
		h.startPeer(p, func(c *raftlog.Config) {
			c.StateMachine = blockingMachine{c.StateMachine, map[string]chan struct{}{"x": release}}
		})
		h.proposeAll(t, h.otherPeers(p)[0], "x")
		time.Sleep(time.Second)
		start := time.Now()
		c := startCandidate(t, h.nodeOf(p), "over")
		select {
		case <-c.ended:
			require.ErrorIs(t, c.err, leaderelection.ErrElectionOver)
		case <-time.After(time.Minute):
			t.Error("the candidacy does not end")
		}
		require.Less(t, time.Since(start), time.Second)
		c = startCandidate(t, h.nodeOf(p), "e")
		synctest.Wait()
		require.NoError(t, c.Resign())
		require.Less(t, time.Since(start), time.Second)
	})
}

// TestNewElection_RejectsInvalidArguments checks that the functions for elections, and ChangePeers, reject
// invalid names, values, options and nodes without writing an entry.
func TestNewElection_RejectsInvalidArguments(t *testing.T) {
	runCluster(t, 1, func(t *testing.T, h *harness) {
		n := h.nodeOf(h.waitForLeader(t))
		before := n.Info().LastIndex
		for _, name := range []string{"", "\xff", strings.Repeat("n", 1025), "re\nport"} {
			_, err := raftlog.NewElection(n, name)
			require.ErrorIs(t, err, leaderelection.ErrInvalid)
			require.ErrorIs(t, raftlog.DeleteElection(n, name), leaderelection.ErrInvalid)
			require.ErrorIs(t, raftlog.RestartElection(n, name), leaderelection.ErrInvalid)
		}
		for _, opts := range [][]raftlog.Option{
			{raftlog.WithName("\xff")},
			{raftlog.WithName("a\x1bb")},
			{raftlog.WithValue("a\x00b")},
			{raftlog.WithValue("\xff")},
			{raftlog.WithName("name"), raftlog.WithValue(strings.Repeat("v", 1020))},
			{raftlog.WithStopGuard(-1)},
			{raftlog.WithStopGuard(time.Second + 1)},
		} {
			_, err := raftlog.NewElection(n, "e", opts...)
			require.ErrorIs(t, err, leaderelection.ErrInvalid)
		}
		longest := raftlog.WithValue("\n" + strings.Repeat("v", 1018))
		_, err := raftlog.NewElection(n, "e", raftlog.WithName("name"), longest, raftlog.WithStopGuard(time.Second))
		require.NoError(t, err)

		_, err = raftlog.NewElection(nil, "e")
		require.ErrorIs(t, err, leaderelection.ErrInvalid)
		_, err = raftlog.Observe(t.Context(), nil, "e")
		require.ErrorIs(t, err, leaderelection.ErrInvalid)
		require.ErrorIs(t, raftlog.DeleteElection(nil, "e"), leaderelection.ErrInvalid)
		require.ErrorIs(t, raftlog.RestartElection(nil, "e"), leaderelection.ErrInvalid)

		_, err = n.ChangePeers(t.Context(), api.NewRequestID(), []api.Peer{h.peers[0], {ID: "\xff", Addr: "host1:1"}})
		require.ErrorIs(t, err, api.ErrInvalid)
		require.Equal(t, before, n.Info().LastIndex)
	}, slowElections)
}

// TestCandidate_EndsAtRemovedPeer checks that the candidacy at a peer that is removed from the cluster ends
// with ErrRefused, and that another candidate leads.
func TestCandidate_EndsAtRemovedPeer(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		removed := h.peers[0]
		c := startLeader(t, h.nodeOf(removed), "e")
		other := startCandidate(t, h.nodeOf(h.peers[1]), "e")
		h.changeVoters(t, h.peers[1], h.peers[1:]...)
		c.waitForEnd(t, api.ErrRefused)
		require.ErrorIs(t, c.err, leaderelection.ErrConnClosed)
		other.waitForLeadership(t)
		late, err := raftlog.NewElection(h.nodeOf(removed), "e")
		require.NoError(t, err)
		require.ErrorIs(t, late.ElectLeader(), api.ErrRefused)
	})
}

// TestStopGuard_EndsLeadershipBeforeLease checks that a leadership ends when only the stop guard remains of the
// lease, and that the candidate leads again with the same token if the lease is renewed before it expires.
func TestStopGuard_EndsLeadershipBeforeLease(t *testing.T) {
	const guard = 400 * time.Millisecond
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.waitForLeader(t)
		n := h.nodeOf(p)
		c := startCandidate(t, n, "e", raftlog.WithStopGuard(guard))
		token := c.waitForLeadership(t)
		l := c.Current().Leadership
		heal := h.isolate(p)
		<-l.Done()
		require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
		require.InDelta(t, guard, n.Info().Lease, float64(10*time.Millisecond))
		heal()
		require.Equal(t, token, c.waitForLeadership(t))
		require.Equal(t, p, n.Info().Leader, "the lease must not expire before its renewal")
	}, slowElections)
}
