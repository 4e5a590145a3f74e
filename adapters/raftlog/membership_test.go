package raftlog_test

// Peers join, replace each other, and go.

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// change makes these the voters, by a request to one peer.
func (w *world) change(t testing.TB, by api.Peer, voters ...api.Peer) uint64 {
	t.Helper()
	index, err := w.node(by).ChangePeers(within(t, time.Minute), requestid.New(), voters)
	require.NoError(t, err)
	return index
}

func members(t testing.TB, n *raftlog.Node) api.Membership {
	t.Helper()
	m, err := n.Membership(within(t, time.Minute))
	require.NoError(t, err)
	return m
}

// A peer that is not one of the voters joins as a client: it gets the log, and does not ask
// for votes.
func TestJoin(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.propose(t, w.peers[0], few("a", 10)...)
		fresh := peer(3)
		n := w.start(fresh)
		w.has(t, []api.Peer{fresh}, few("a", 10)...)
		await(t, "it is a client", func() bool { return slices.Contains(members(t, n).Learners, fresh) })
		require.Equal(t, "learner", n.Info().Role)
		w.propose(t, fresh, "by the client")
		w.has(t, append(w.others(), fresh), append(few("a", 10), "by the client")...)
		require.NoError(t, w.stop(fresh))
		n = w.start(fresh)
		w.has(t, []api.Peer{fresh}, append(few("a", 10), "by the client")...)
		require.Len(t, members(t, n).Learners, 1)
		for _, p := range w.peers {
			require.NoError(t, w.stop(p))
		}
		term := n.Info().Term
		for range 100 {
			time.Sleep(50 * time.Millisecond)
			require.Equal(t, "learner", n.Info().Role)
		}
		require.Equal(t, term, n.Info().Term, "it asks nobody for votes")
	})
}

func TestJoinWithoutAnybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		began := time.Now()
		var said bytes.Buffer // until Open returns nobody else logs
		_, err := w.open(peer(3), func(c *raftlog.Config) {
			c.JoinTimeout, c.Logger = 5*time.Second, slog.New(slog.NewTextHandler(&said, nil))
		})
		require.ErrorContains(t, err, "p3 is not one of Peers, and none of these has provided the snapshot of the cluster within 5s")
		require.Equal(t, 3, strings.Count(said.String(), "no snapshot to join the cluster"), "once of each: %s", &said)
		require.InDelta(t, 5*time.Second, time.Since(began), float64(time.Second))
		w.startAll()
		w.start(peer(3)) // the folder is as good as new
	})
}

// TestAddWhoDoesNotAnswer: the caller gives up before the leader does, and learns that nothing was
// changed. Nothing is changed when the new peer comes later, either.
func TestAddWhoDoesNotAnswer(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		leader := w.leader(t)
		voters := append(w.others(), peer(3))
		c, err := client.New(client.Config{
			Cluster: "test", Peers: w.others(leader), Insecure: true,
			Dial: func(ctx context.Context, addr string) (net.Conn, error) { return w.net.Dial(ctx, "client:1", addr) },
		})
		require.NoError(t, err)
		defer c.Close()
		// Less than what the leader gives a new peer, and more: then the client repeats the request.
		for _, wait := range []time.Duration{3 * time.Second, time.Minute} {
			began := time.Now()
			_, err = c.ChangePeers(within(t, wait), requestid.New(), voters)
			require.ErrorIs(t, err, api.ErrBusy)
			require.NotErrorIs(t, err, api.ErrUnknownOutcome)
			require.ErrorContains(t, err, "nothing was changed: new peers [p3] do not answer")
			require.LessOrEqual(t, time.Since(began), wait)
		}
		_, err = w.node(leader).ChangePeers(within(t, 3*time.Second), requestid.New(), voters)
		require.ErrorIs(t, err, api.ErrBusy)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
		n := w.start(peer(3))
		await(t, "it is a client", func() bool { return slices.Contains(members(t, n).Learners, peer(3)) })
		time.Sleep(time.Minute)
		require.Len(t, members(t, n).Voters, 3)
	})
}

func TestReplaceOne(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.propose(t, w.peers[0], "before")
		for _, gone := range []api.Peer{w.leader(t), w.others(w.leader(t))[0]} {
			now := append(slices.DeleteFunc(members(t, w.node(w.leader(t))).Voters, func(p api.Peer) bool { return p == gone }), peer(len(w.peers)))
			fresh := now[len(now)-1]
			w.start(fresh)
			w.peers = append(w.peers, fresh)
			index := w.change(t, gone, now...)
			require.NoError(t, w.node(fresh).Sync(within(t, time.Minute)))
			m := members(t, w.node(fresh))
			require.ElementsMatch(t, now, m.Voters)
			require.Empty(t, m.Outgoing)
			require.Contains(t, m.Removed, gone.ID)
			require.Equal(t, index, m.Index)
			w.propose(t, fresh, "after "+gone.ID)
			if gone != w.peers[0] && len(w.peers) > 4 {
				break
			}
		}
	})
}

// All voters at once: clients find the new ones by those of before, and the old ones do not
// disturb the new.
func TestReplaceAll(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		old := w.others()
		w.propose(t, old[0], few("a", 5)...)
		fresh := []api.Peer{peer(3), peer(4), peer(5)}
		for _, p := range fresh {
			w.start(p)
		}
		connect := func(ctx context.Context, addr string) (net.Conn, error) { return w.net.Dial(ctx, "client:1", addr) }
		clients := []*client.Client{}
		for range 2 {
			c, err := client.New(client.Config{Cluster: "test", Peers: old, Insecure: true, Dial: connect})
			require.NoError(t, err)
			defer c.Close()
			clients = append(clients, c)
		}
		sub := clients[0].Subscribe(t.Context(), 1)
		defer sub.Close()
		go func() {
			for range sub.Events() {
			}
		}()
		id := requestid.New()
		index, err := clients[0].ChangePeers(within(t, time.Minute), id, fresh)
		require.NoError(t, err)
		again, err := clients[1].ChangePeers(within(t, time.Minute), id, fresh)
		require.NoError(t, err)
		require.Equal(t, index, again)

		time.Sleep(5 * time.Second) // the old ones run on
		var terms []uint64
		for _, p := range fresh {
			require.ElementsMatch(t, fresh, members(t, w.node(p)).Voters)
			terms = append(terms, w.node(p).Info().Term)
		}
		for _, p := range old {
			require.ElementsMatch(t, fresh, members(t, w.node(p)).Voters, "%s tells clients who the peers are", p.ID)
			require.Equal(t, "removed", w.node(p).Info().Role)
		}
		late, err := client.New(client.Config{Cluster: "test", Peers: old, Insecure: true, Dial: connect})
		require.NoError(t, err)
		defer late.Close()
		for _, c := range append(clients, late) {
			_, err := c.Propose(within(t, time.Minute), requestid.New(), []byte("b"))
			require.NoError(t, err)
		}
		w.has(t, fresh, append(few("a", 5), "b", "b", "b")...)
		time.Sleep(5 * time.Second)
		for i, p := range fresh {
			require.Equal(t, terms[i], w.node(p).Info().Term, "the old ones disturb")
		}
		_, err = w.node(old[0]).Propose(within(t, time.Second), requestid.New(), []byte("c"))
		require.ErrorIs(t, err, api.ErrRefused)
		require.ErrorIs(t, w.node(old[0]).Sync(within(t, time.Minute)), api.ErrRefused)
		for _, p := range old {
			require.NoError(t, w.stop(p))
		}
		for _, c := range clients {
			_, err := c.Propose(within(t, time.Minute), requestid.New(), []byte("d"))
			require.NoError(t, err)
		}
		// One that was removed stays so when it is started again.
		n := w.start(old[0])
		await(t, "it knows", func() bool { return n.Info().Role == "removed" })
	})
}

func TestChangeIsRefused(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		a, b, c := w.peers[0], w.peers[1], w.peers[2]
		w.start(peer(3))
		w.change(t, a, a, b, peer(3))
		before := members(t, w.node(a))
		for what, voters := range map[string][]api.Peer{
			"nobody":                     {},
			"no ID":                      {a, b, {Addr: "host9:1"}},
			"no address":                 {a, b, {ID: "p9"}},
			"twice":                      {a, b, b},
			"the same":                   {a, peer(3), b},
			"an ID that was removed":     {a, b, c},
			"another address":            {a, {ID: b.ID, Addr: "host9:1"}},
			"the address of another one": {a, b, {ID: "p9", Addr: b.Addr}},
		} {
			_, err := w.node(b).ChangePeers(within(t, time.Minute), requestid.New(), voters)
			require.ErrorIs(t, err, api.ErrInvalid, what)
		}
		_, err := w.node(b).ChangePeers(within(t, time.Minute), requestid.ID{}, []api.Peer{a, b})
		require.ErrorIs(t, err, api.ErrInvalid)
		_, err = w.node(b).ChangePeers(within(t, time.Minute), requestid.At(time.Now().Add(-8*time.Hour)), []api.Peer{a, b})
		require.ErrorIs(t, err, api.ErrStale)
		// One that has never reported.
		began := time.Now()
		_, err = w.node(b).ChangePeers(within(t, time.Minute), requestid.New(), []api.Peer{a, b, peer(9)})
		require.ErrorIs(t, err, api.ErrBusy)
		require.ErrorContains(t, err, "p9")
		require.Less(t, time.Since(began), 6*time.Second)
		require.Equal(t, before, members(t, w.node(a)))
		w.propose(t, a, "goes on")
	})
}

// The address of a member is refused to a newcomer, too, and an ID that was removed.
func TestJoinIsRefused(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.start(peer(3))
		w.change(t, w.peers[0], w.peers[0], w.peers[1], peer(3))
		require.NoError(t, w.stop(w.peers[2]))
		w.mu.Lock()
		delete(w.disks, w.peers[2].ID) // it comes back empty, and wants to join
		w.mu.Unlock()
		seeds := []api.Peer{w.peers[0], w.peers[1], peer(3)}
		_, err := w.open(w.peers[2], func(c *raftlog.Config) { c.Peers = seeds })
		require.ErrorIs(t, err, api.ErrIdentity)
		usurper := api.Peer{ID: "p8", Addr: "host8:1"}
		n := w.start(usurper, func(c *raftlog.Config) { c.Peers, c.Addr = seeds, w.peers[1].Addr })
		time.Sleep(5 * time.Second)
		require.Empty(t, members(t, w.node(w.peers[0])).Learners)
		require.Equal(t, "learner", n.Info().Role)
	})
}

func TestChangeRepeated(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		a, b, c := w.peers[0], w.peers[1], w.peers[2]
		w.start(peer(3))
		ask := func(by api.Peer, id requestid.ID, voters ...api.Peer) (uint64, error) {
			return w.node(by).ChangePeers(within(t, time.Minute), id, voters)
		}
		first, second := requestid.New(), requestid.New()
		index, err := ask(a, first, a, b, c, peer(3))
		require.NoError(t, err)
		for _, by := range []api.Peer{a, b, peer(3)} {
			again, err := ask(by, first, a, b, c, peer(3))
			require.NoError(t, err)
			require.Equal(t, index, again)
		}
		_, err = ask(a, first, a, b)
		require.ErrorIs(t, err, api.ErrRequestIDReused)
		_, err = ask(a, second, a, b, peer(3))
		require.NoError(t, err)
		older, err := ask(a, first, a, b, c, peer(3))
		require.NoError(t, err, "one of before the newest")
		require.LessOrEqual(t, older, index)
		require.ElementsMatch(t, []api.Peer{a, b, peer(3)}, members(t, w.node(a)).Voters)
		w.propose(t, a, "x")
	})
}

func TestTwoChangesAtOnce(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.leader(t)
		first := make(chan error, 1)
		go func() {
			_, err := w.node(w.peers[0]).ChangePeers(t.Context(), requestid.New(), append(w.others(), peer(3)))
			first <- err
		}()
		time.Sleep(time.Second) // it waits for the new peer
		_, err := w.node(w.peers[1]).ChangePeers(within(t, time.Minute), requestid.New(), w.peers[:2])
		require.ErrorIs(t, err, api.ErrChanging)
		w.start(peer(3))
		require.NoError(t, <-first)
		require.ElementsMatch(t, append(w.others(), peer(3)), members(t, w.node(peer(3))).Voters)
	})
}

// A change whose leader is lost at any moment of it is completed by the next leader, or was
// not begun; and whoever asks again learns.
func TestChangeAndPowerFailures(t *testing.T) {
	for after := range 8 {
		inWorld(t, 3, func(t *testing.T, w *world) {
			old := w.others()
			leader := w.leader(t)
			w.start(peer(3))
			w.peers = append(w.peers, peer(3))
			await(t, "a client", func() bool { return len(members(t, w.node(leader)).Learners) == 1 })
			for _, p := range w.peers { // the log takes its time, so that a moment can be met
				for _, q := range w.peers {
					w.net.Delay(p.Addr, q.Addr, 2*time.Millisecond)
				}
			}
			time.Sleep(time.Second)
			leader = w.leader(t)
			stays := slices.DeleteFunc(old, func(p api.Peer) bool { return p == leader })
			id, voters := requestid.New(), append(stays, peer(3))
			began := time.Now()
			done := make(chan error, 1)
			go func() {
				_, err := w.node(stays[0]).ChangePeers(within(t, time.Minute), id, voters)
				done <- err
			}()
			time.Sleep(time.Duration(after) * 3 * time.Millisecond)
			w.crash(leader)
			w.start(leader)
			require.NoError(t, <-done)
			require.Less(t, time.Since(began), 3*time.Second)
			await(t, "all know of the end", func() bool {
				for _, p := range voters {
					if m := members(t, w.node(p)); len(m.Outgoing) > 0 || len(m.Voters) != 3 || m.Voters[0] != voters[0] {
						return false
					}
				}
				return true
			})
			require.ElementsMatch(t, voters, members(t, w.node(stays[0])).Voters)
			w.propose(t, peer(3), "x")
		})
	}
}

// A voter that has lost its disk, and is started under its old ID, is stopped: it does not
// know what it has voted and confirmed.
func TestWipedPeerIsStopped(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		leader := w.leader(t)
		wiped := w.others(leader)[0]
		w.propose(t, leader, few("a", 10)...)
		w.crash(wiped)
		w.mu.Lock()
		delete(w.disks, wiped.ID)
		w.mu.Unlock()
		heal := w.isolate(wiped) // so that it founds the cluster once more
		n := w.start(wiped)
		heal()
		await(t, "it has stopped", func() bool { return n.Err() != nil })
		require.ErrorIs(t, n.Err(), api.ErrFault)
		require.Contains(t, n.Info().Fault, "join under a new ID")
		_, err := n.Propose(t.Context(), requestid.New(), []byte("x"))
		require.ErrorIs(t, err, api.ErrFault)
		_, err = raftlog.NewElection(n, "e")
		require.ErrorIs(t, err, api.ErrFault)
		require.ErrorIs(t, n.Close(), api.ErrFault)
		w.propose(t, leader, "goes on")
	})
}
