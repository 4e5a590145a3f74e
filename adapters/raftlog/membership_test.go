package raftlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// changeVoters replaces the voters of the cluster by a call of ChangePeers at peer by, and returns the index of
// the change.
func (h *harness) changeVoters(t testing.TB, by api.Peer, voters ...api.Peer) uint64 {
	t.Helper()
	index, err := h.nodeOf(by).ChangePeers(contextWithin(t, time.Minute), api.NewRequestID(), voters)
	require.NoError(t, err)
	return index
}

func membershipOf(t testing.TB, n *raftlog.Node) api.Membership {
	t.Helper()
	m, err := n.Membership(contextWithin(t, time.Minute))
	require.NoError(t, err)
	return m
}

// TestJoin_PeerBecomesLearner checks that a peer that is not a voter receives the log, becomes a learner, and
// starts no election when the voters stop.
func TestJoin_PeerBecomesLearner(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		h.proposeAll(t, h.peers[0], numberedUpdates("a", 10)...)
		fresh := peerInfo(3)
		n := h.startPeer(fresh)
		h.requireUpdates(t, []api.Peer{fresh}, numberedUpdates("a", 10)...)
		waitFor(t, "the peer is a learner", func() bool { return slices.Contains(membershipOf(t, n).Learners, fresh) })
		require.Equal(t, "learner", n.Info().Role)
		h.proposeAll(t, fresh, "by the client")
		h.requireUpdates(t, append(h.otherPeers(), fresh), append(numberedUpdates("a", 10), "by the client")...)
		require.NoError(t, h.stopPeer(fresh))
		n = h.startPeer(fresh)
		h.requireUpdates(t, []api.Peer{fresh}, append(numberedUpdates("a", 10), "by the client")...)
		require.Len(t, membershipOf(t, n).Learners, 1)
		for _, p := range h.peers {
			require.NoError(t, h.stopPeer(p))
		}
		term := n.Info().Term
		for range 100 {
			time.Sleep(50 * time.Millisecond)
			require.Equal(t, "learner", n.Info().Role)
		}
		require.Equal(t, term, n.Info().Term, "the learner does not start elections")
	})
}

// TestJoin_FailsAfterTimeoutWithoutPeers checks that Open of a joining peer that reaches no other peer fails
// after JoinTimeout, and logs one message for each peer.
func TestJoin_FailsAfterTimeoutWithoutPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, 3)
		start := time.Now()
		var logs bytes.Buffer // needs no lock, because only one goroutine logs until Open returns
		_, err := h.openPeer(peerInfo(3), func(c *raftlog.Config) {
			c.JoinTimeout, c.Logger = 5*time.Second, slog.New(slog.NewTextHandler(&logs, nil))
		})
		require.ErrorContains(t, err, "p3 is not an initial voter, and none of the configured peers has provided the snapshot of the cluster within the join timeout of 5s")
		require.Equal(t, 3, strings.Count(logs.String(), "no snapshot to join the cluster"), "one message for each peer: %s", &logs)
		require.InDelta(t, 5*time.Second, time.Since(start), float64(time.Second))
		h.startAll()
		h.startPeer(peerInfo(3)) // the directory of the failed call of Open can be used again
	})
}

// TestJoin_LogsThatShorterWindowIsIgnored checks that a peer with a shorter Config.Window than the cluster logs
// that its window is ignored, and that no other peer logs this.
func TestJoin_LogsThatShorterWindowIsIgnored(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		h.waitForLeader(t)
		h.startPeer(peerInfo(3), shortWindow)
		h.startPeer(peerInfo(4))
		ignored := "the window of this peer is ignored"
		require.Contains(t, h.logOf(peerInfo(3)), ignored)
		for _, other := range []int{0, 1, 2, 4} {
			require.NotContains(t, h.logOf(peerInfo(other)), ignored)
		}
	})
}

// TestJoin_SucceedsDespiteUnresponsivePeer checks that a peer joins the cluster even if the first peer in
// Config.Peers does not answer.
func TestJoin_SucceedsDespiteUnresponsivePeer(t *testing.T) {
	for name, dial := range map[string]func(context.Context, api.Peer) (net.Conn, error){
		"before it accepts": func(ctx context.Context, _ api.Peer) (net.Conn, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		},
		"after the handshake": func(_ context.Context, to api.Peer) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				conn, err := link.Accept(context.Background(), far, link.Identity{
					Cluster: "test", ID: to.ID, Peer: true, Addr: to.Addr, Insecure: true, Claim: link.Claim{Founding: "founding"},
				}, func(h link.Hello) error {
					if h.Purpose != link.PurposeStream {
						return errors.New("not the connection for a snapshot")
					}
					return nil
				})
				for err == nil {
					_, err = conn.ReadFrame()
				}
			}()
			return near, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			runCluster(t, 3, func(t *testing.T, h *harness) {
				silent := h.otherPeers(h.waitForLeader(t))[0]
				fresh := peerInfo(3)
				n := h.startPeer(fresh, func(c *raftlog.Config) {
					c.Peers = append([]api.Peer{silent}, h.otherPeers(silent)...)
					others := c.Dial
					c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
						if addr == silent.Addr {
							return dial(ctx, silent)
						}
						return others(ctx, addr)
					}
				})
				waitFor(t, "the peer is a learner", func() bool { return slices.Contains(membershipOf(t, n).Learners, fresh) })
			})
		})
	}
}

// TestChangePeers_ChangesNothingIfNewPeerIsUnreachable checks that ChangePeers returns ErrBusy, and changes
// nothing later, if a new peer does not answer, even if the caller's context is done before the leader's
// deadline for new peers.
func TestChangePeers_ChangesNothingIfNewPeerIsUnreachable(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		voters := append(h.otherPeers(), peerInfo(3))
		c := h.newClient(t, h.otherPeers(leader)...)
		// The first context is done before the leader's deadline. During the second context the client repeats
		// the request.
		for _, wait := range []time.Duration{3 * time.Second, 20 * time.Second} {
			start := time.Now()
			_, err := c.ChangePeers(contextWithin(t, wait), api.NewRequestID(), voters)
			require.ErrorIs(t, err, api.ErrBusy)
			require.NotErrorIs(t, err, api.ErrUnknownOutcome)
			require.ErrorContains(t, err, "nothing was changed: new peers [p3] do not answer")
			require.LessOrEqual(t, time.Since(start), wait)
		}
		_, err := h.nodeOf(leader).ChangePeers(contextWithin(t, 3*time.Second), api.NewRequestID(), voters)
		require.ErrorIs(t, err, api.ErrBusy)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
		n := h.startPeer(peerInfo(3))
		waitFor(t, "the peer is a learner", func() bool { return slices.Contains(membershipOf(t, n).Learners, peerInfo(3)) })
		time.Sleep(10 * time.Second)
		require.Len(t, membershipOf(t, n).Voters, 3)
	})
}

// TestChangePeers_ReplacesLeaderAndFollower checks that ChangePeers can replace the leader of the log, and then
// a follower, by a new peer.
func TestChangePeers_ReplacesLeaderAndFollower(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		h.proposeAll(t, h.peers[0], "before")
		for _, removed := range []api.Peer{h.waitForLeader(t), h.otherPeers(h.waitForLeader(t))[0]} {
			now := append(slices.DeleteFunc(membershipOf(t, h.nodeOf(h.waitForLeader(t))).Voters, func(p api.Peer) bool { return p == removed }), peerInfo(len(h.peers)))
			fresh := now[len(now)-1]
			h.startPeer(fresh)
			h.peers = append(h.peers, fresh)
			index := h.changeVoters(t, removed, now...)
			h.syncPeer(t, fresh)
			m := membershipOf(t, h.nodeOf(fresh))
			require.ElementsMatch(t, now, m.Voters)
			require.Empty(t, m.Outgoing)
			require.Contains(t, m.Removed, removed.ID)
			require.Equal(t, index, m.Index)
			h.proposeAll(t, fresh, "after "+removed.ID)
			if removed != h.peers[0] && len(h.peers) > 4 {
				break
			}
		}
	})
}

// TestChangePeers_ReplacesAllVoters checks that clients find the new voters after all voters were replaced, and
// that removed peers do not disturb the new voters.
func TestChangePeers_ReplacesAllVoters(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		old := h.otherPeers()
		h.proposeAll(t, old[0], numberedUpdates("a", 5)...)
		fresh := []api.Peer{peerInfo(3), peerInfo(4), peerInfo(5)}
		for _, p := range fresh {
			h.startPeer(p)
		}
		clients := []*client.Client{h.newClient(t, old...), h.newClient(t, old...)}
		sub := clients[0].Subscribe(t.Context(), 1)
		defer sub.Close()
		go func() {
			for range sub.Events() {
			}
		}()
		id := api.NewRequestID()
		index, err := clients[0].ChangePeers(contextWithin(t, time.Minute), id, fresh)
		require.NoError(t, err)
		again, err := clients[1].ChangePeers(contextWithin(t, time.Minute), id, fresh)
		require.NoError(t, err)
		require.Equal(t, index, again)

		time.Sleep(5 * time.Second) // give the removed peers time to disturb the new voters
		var terms []uint64
		for _, p := range fresh {
			require.ElementsMatch(t, fresh, membershipOf(t, h.nodeOf(p)).Voters)
			terms = append(terms, h.nodeOf(p).Info().Term)
		}
		for _, p := range old {
			require.ElementsMatch(t, fresh, membershipOf(t, h.nodeOf(p)).Voters, "%s sends the current peers to clients", p.ID)
			require.Equal(t, "removed", h.nodeOf(p).Info().Role)
		}
		for _, c := range append(clients, h.newClient(t, old...)) {
			_, err := c.Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte("b"))
			require.NoError(t, err)
		}
		h.requireUpdates(t, fresh, append(numberedUpdates("a", 5), "b", "b", "b")...)
		time.Sleep(5 * time.Second)
		for i, p := range fresh {
			require.Equal(t, terms[i], h.nodeOf(p).Info().Term, "removed peers must not start elections")
		}
		_, err = h.nodeOf(old[0]).Propose(contextWithin(t, time.Second), api.NewRequestID(), []byte("c"))
		require.ErrorIs(t, err, api.ErrRefused)
		require.ErrorIs(t, h.nodeOf(old[0]).Sync(contextWithin(t, time.Minute)), api.ErrRefused)
		for _, p := range old {
			require.NoError(t, h.stopPeer(p))
		}
		for _, c := range clients {
			_, err := c.Propose(contextWithin(t, time.Minute), api.NewRequestID(), []byte("d"))
			require.NoError(t, err)
		}
		// A removed peer remains removed when it is restarted.
		n := h.startPeer(old[0])
		waitFor(t, "the peer is removed", func() bool { return n.Info().Role == "removed" })
	})
}

// TestChangePeers_RejectsInvalidChanges checks that ChangePeers rejects voters with missing, duplicate, removed
// or contradictory IDs and addresses, the present voters, and an invalid request ID.
func TestChangePeers_RejectsInvalidChanges(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		a, b, c := h.peers[0], h.peers[1], h.peers[2]
		h.startPeer(peerInfo(3))
		h.changeVoters(t, a, a, b, peerInfo(3))
		before := membershipOf(t, h.nodeOf(a))
		for what, voters := range map[string][]api.Peer{
			"no voters":                   {},
			"no ID":                       {a, b, {Addr: "host9:1"}},
			"no address":                  {a, b, {ID: "p9"}},
			"duplicate":                   {a, b, b},
			"no change":                   {a, peerInfo(3), b},
			"an ID that was removed":      {a, b, c},
			"another address":             {a, {ID: b.ID, Addr: "host9:1"}},
			"the address of another peer": {a, b, {ID: "p9", Addr: b.Addr}},
		} {
			_, err := h.nodeOf(b).ChangePeers(contextWithin(t, time.Minute), api.NewRequestID(), voters)
			require.ErrorIs(t, err, api.ErrInvalid, what)
		}
		_, err := h.nodeOf(b).ChangePeers(contextWithin(t, time.Minute), api.RequestID{}, []api.Peer{a, b})
		require.ErrorIs(t, err, api.ErrInvalid)
		_, err = h.nodeOf(b).ChangePeers(contextWithin(t, time.Minute), api.RequestIDAt(time.Now().Add(-8*time.Hour)), []api.Peer{a, b})
		require.ErrorIs(t, err, api.ErrStale)
		// The new voter p9 is not running.
		start := time.Now()
		_, err = h.nodeOf(b).ChangePeers(contextWithin(t, time.Minute), api.NewRequestID(), []api.Peer{a, b, peerInfo(9)})
		require.ErrorIs(t, err, api.ErrBusy)
		require.ErrorContains(t, err, "p9")
		require.Less(t, time.Since(start), 6*time.Second)
		require.Equal(t, before, membershipOf(t, h.nodeOf(a)))
		h.proposeAll(t, a, "x")
	})
}

// TestJoin_RejectsRemovedPeer checks that a removed peer that starts with an empty directory cannot join the
// cluster again under its former ID.
func TestJoin_RejectsRemovedPeer(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		h.startPeer(peerInfo(3))
		h.changeVoters(t, h.peers[0], h.peers[0], h.peers[1], peerInfo(3))
		require.NoError(t, h.stopPeer(h.peers[2]))
		h.mu.Lock()
		delete(h.disks, h.peers[2].ID) // the peer restarts with an empty directory, as a joining peer
		h.mu.Unlock()
		_, err := h.openPeer(h.peers[2], withInitialVoters(h.peers[0], h.peers[1], peerInfo(3)))
		require.ErrorIs(t, err, api.ErrIdentity)
	})
}

// TestChangePeers_RejectsSecondConcurrentChange checks that ChangePeers returns ErrChanging while another
// change is in progress.
func TestChangePeers_RejectsSecondConcurrentChange(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		h.waitForLeader(t)
		first := make(chan error, 1)
		go func() {
			_, err := h.nodeOf(h.peers[0]).ChangePeers(t.Context(), api.NewRequestID(), append(h.otherPeers(), peerInfo(3)))
			first <- err
		}()
		time.Sleep(time.Second) // wait until the change waits for the new peer
		_, err := h.nodeOf(h.peers[1]).ChangePeers(contextWithin(t, time.Minute), api.NewRequestID(), h.peers[:2])
		require.ErrorIs(t, err, api.ErrChanging)
		h.startPeer(peerInfo(3))
		require.NoError(t, <-first)
		require.ElementsMatch(t, append(h.otherPeers(), peerInfo(3)), membershipOf(t, h.nodeOf(peerInfo(3))).Voters)
	})
}

// TestChangePeers_SucceedsDespiteLeaderCrash checks that ChangePeers at another peer returns nil, and that all
// voters complete the change, at whatever moment of the change the leader crashes. This covers defect Z10 of
// ØMQ Raft.
func TestChangePeers_SucceedsDespiteLeaderCrash(t *testing.T) {
	for after := range 8 {
		runCluster(t, 3, func(t *testing.T, h *harness) {
			old := h.otherPeers()
			leader := h.waitForLeader(t)
			h.startPeer(peerInfo(3))
			h.peers = append(h.peers, peerInfo(3))
			waitFor(t, "the peer is a learner", func() bool { return len(membershipOf(t, h.nodeOf(leader)).Learners) == 1 })
			for _, p := range h.peers { // delay messages by 2 ms, so that the crashes hit different moments of the change
				for _, q := range h.peers {
					h.net.Delay(p.Addr, q.Addr, 2*time.Millisecond)
				}
			}
			time.Sleep(time.Second)
			leader = h.waitForLeader(t)
			stays := slices.DeleteFunc(old, func(p api.Peer) bool { return p == leader })
			id, voters := api.NewRequestID(), append(stays, peerInfo(3))
			start := time.Now()
			done := make(chan error, 1)
			go func() {
				_, err := h.nodeOf(stays[0]).ChangePeers(contextWithin(t, time.Minute), id, voters)
				done <- err
			}()
			time.Sleep(time.Duration(after) * 3 * time.Millisecond)
			h.crashPeer(leader)
			h.startPeer(leader)
			require.NoError(t, <-done)
			require.Less(t, time.Since(start), 3*time.Second)
			waitFor(t, "all voters have completed the change", func() bool {
				for _, p := range voters {
					if m := membershipOf(t, h.nodeOf(p)); len(m.Outgoing) > 0 || len(m.Voters) != 3 || m.Voters[0] != voters[0] {
						return false
					}
				}
				return true
			})
			require.ElementsMatch(t, voters, membershipOf(t, h.nodeOf(stays[0])).Voters)
			h.proposeAll(t, peerInfo(3), "x")
		})
	}
}

// TestIdentity_RejectsVoterThatLostItsDisk checks that a voter that has lost its disk, and so its votes and
// acknowledgements, stops with ErrFault when it returns under its previous ID.
func TestIdentity_RejectsVoterThatLostItsDisk(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		wiped := h.otherPeers(leader)[0]
		h.proposeAll(t, leader, numberedUpdates("a", 10)...)
		h.crashPeer(wiped)
		delete(h.disks, wiped.ID)
		heal := h.isolate(wiped) // isolate the peer, so that no peer refuses it and it founds the cluster again
		n := h.startPeer(wiped)
		heal()
		waitFor(t, "the peer has stopped", func() bool { return n.Err() != nil })
		require.ErrorIs(t, n.Err(), api.ErrFault)
		require.Contains(t, n.Info().Fault, "under a new ID")
		_, err := n.Propose(t.Context(), api.NewRequestID(), []byte("x"))
		require.ErrorIs(t, err, api.ErrFault)
		_, err = raftlog.NewElection(n, "e")
		require.ErrorIs(t, err, api.ErrFault)
		require.ErrorIs(t, n.Close(), api.ErrFault)
		h.proposeAll(t, leader, "x")
	})
}

// TestMove_OtherPeersUseNewAddress checks that the other peers learn the new address of a peer that has moved,
// and connect to the new address.
func TestMove_OtherPeersUseNewAddress(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		a, b, c := h.peers[0], h.peers[1], h.peers[2]
		h.proposeAll(t, a, numberedUpdates("x", 20)...)
		moved := api.Peer{ID: b.ID, Addr: "host9:1"}
		require.NoError(t, h.stopPeer(b))
		own := withInitialVoters(a, moved, c)
		h.startPeer(moved, own)
		waitFor(t, "all peers have the new address", func() bool {
			return !slices.ContainsFunc(h.runningNodes(), func(n *raftlog.Node) bool {
				return !slices.Contains(membershipOf(t, n).Voters, moved)
			})
		})
		require.Empty(t, membershipOf(t, h.nodeOf(a)).Removed)
		// The other peers dial the new address, even without a connection from that address.
		require.NoError(t, h.stopPeer(c))
		h.proposeAll(t, a, "a and b")
		h.startPeer(c)
		require.NoError(t, h.stopPeer(a))
		h.proposeAll(t, c, "b and c")
		h.requireUpdates(t, []api.Peer{moved, c}, append(numberedUpdates("x", 20), "a and b", "b and c")...)
		// The leader sends a snapshot to the new address.
		h.startPeer(a)
		h.waitForLeader(t)
		require.NoError(t, h.stopPeer(moved))
		h.proposeAll(t, a, numberedUpdates("y", 20)...)
		time.Sleep(2 * time.Minute)
		h.compact(t, a, c)
		h.startPeer(moved, own)
		h.proposeAll(t, a, "end")
		h.requireUpdates(t, []api.Peer{moved}, slices.Concat(numberedUpdates("x", 20), []string{"a and b", "b and c"}, numberedUpdates("y", 20), []string{"end"})...)
	}, shortWindow)
}

// movedTo returns peer p with the address of host i.
func movedTo(p api.Peer, i int) api.Peer { return api.Peer{ID: p.ID, Addr: fmt.Sprintf("host%d:1", i)} }

// TestMove_AllPeersFormClusterAtNewAddresses checks that peers whose addresses have all changed at the same
// time form the cluster again, and that the log contains the new addresses after that.
func TestMove_AllPeersFormClusterAtNewAddresses(t *testing.T) {
	for name, stays := range map[string]int{"all of three": 0, "two of three": 1} {
		t.Run(name, func(t *testing.T) {
			runCluster(t, 3, func(t *testing.T, h *harness) {
				h.proposeAll(t, h.peers[0], "a")
				h.requireUpdates(t, h.peers, "a")
				h.stopAll()
				for i := stays; i < 3; i++ {
					h.peers[i] = movedTo(h.peers[i], 5+i)
				}
				h.startAll()
				h.proposeAll(t, h.peers[0], "b")
				h.requireUpdates(t, h.peers, "a", "b")
				waitFor(t, "the log contains the addresses", func() bool {
					return slices.Equal(membershipOf(t, h.nodeOf(h.peers[1])).Voters, h.peers)
				})
				// The peers find the new addresses in the log, because their configurations list the former
				// addresses.
				h.stopAll()
				founded := []api.Peer{peerInfo(0), peerInfo(1), peerInfo(2)}
				for i, p := range h.peers {
					own := slices.Clone(founded)
					own[i] = p
					h.startPeer(p, withInitialVoters(own...))
				}
				h.proposeAll(t, h.peers[2], "c")
			})
		})
	}
}

// TestJoin_RejectsAddressOfMember checks that a peer with the address of a member does not become a learner,
// and that the peer and the leader each log the reason once.
func TestJoin_RejectsAddressOfMember(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		d := peerInfo(3)
		h.startPeer(d, func(c *raftlog.Config) { c.Addr = h.peers[1].Addr })
		time.Sleep(15 * time.Second)
		require.Equal(t, 1, strings.Count(h.logOf(d), "p3 is not admitted: its address host1:1 is that of peer p1"))
		require.Equal(t, 1, strings.Count(h.logOf(leader), "p3 is not admitted"))
		require.Equal(t, "learner", h.nodeOf(d).Info().Role)
		require.Empty(t, membershipOf(t, h.nodeOf(leader)).Learners)
	})
}
