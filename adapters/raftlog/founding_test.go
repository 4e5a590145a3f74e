package raftlog_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// withInitialVoters returns an option that sets the initial voters, Config.Peers.
func withInitialVoters(peers ...api.Peer) func(*raftlog.Config) {
	return func(c *raftlog.Config) { c.Peers = peers }
}

// TestFoundCluster_DoesNotWaitForUnreachablePeers checks that Open of an initial voter that cannot reach the
// other initial voters returns within five seconds.
func TestFoundCluster_DoesNotWaitForUnreachablePeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, 3)
		defer h.isolate(h.peers[0])()
		start := time.Now()
		h.startPeer(h.peers[0])
		require.Less(t, time.Since(start), 5*time.Second)
	})
}

// TestFoundCluster_WrongPeersCanBeCorrected checks that a peer that was started with a wrong list of initial
// voters does not stop other peers, logs both lists, and can be started again with the right list.
func TestFoundCluster_WrongPeersCanBeCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, 3)
		a, b, c := h.peers[0], h.peers[1], h.peers[2]
		wrong := withInitialVoters(a, api.Peer{ID: b.ID, Addr: "mistyped:1"}, c)
		first := h.startPeer(a, wrong)
		time.Sleep(time.Minute)
		require.NoError(t, first.Err())

		// The first peer with the right list does not stop when it meets the peer with the wrong list.
		h.startPeer(b)
		time.Sleep(time.Minute)
		for _, p := range []api.Peer{a, b} {
			require.NoError(t, h.nodeOf(p).Err())
			for _, list := range []string{"host0:1/p0 host1:1/p1 host2:1/p2", "host0:1/p0 mistyped:1/p1 host2:1/p2"} {
				require.Contains(t, h.logOf(p), list, "at %s", p.ID)
			}
		}

		// A majority with the right list founds the cluster. The peer with the wrong list stops.
		h.startPeer(c)
		h.proposeAll(t, c, "a")
		waitFor(t, "the wrong peer has stopped", func() bool { return first.Err() != nil })
		err := h.stopPeer(a)
		require.ErrorIs(t, err, api.ErrIdentity)
		require.ErrorContains(t, err, "host0:1/p0 host1:1/p1 host2:1/p2")
		require.ErrorContains(t, err, "host0:1/p0 mistyped:1/p1 host2:1/p2")

		h.startPeer(a)
		h.requireUpdates(t, h.peers, "a")
		require.Contains(t, h.logOf(a), "founding the cluster again")
		// A peer with a wrong list does not found an established cluster again.
		h.restart(t, a, wrong)
		h.requireUpdates(t, h.peers, "a")
	})
}

// TestFoundCluster_AllPeersWithWrongListCanBeCorrected checks that peers that were all started with a wrong
// list can be started with the right list, one after another.
func TestFoundCluster_AllPeersWithWrongListCanBeCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, 3)
		wrong := withInitialVoters(h.peers[0], api.Peer{ID: "p1", Addr: "mistyped:1"}, h.peers[2])
		for _, p := range []api.Peer{h.peers[0], h.peers[2]} {
			heal := h.isolate(p)
			h.startPeer(p, wrong)
			time.Sleep(time.Second)
			require.NoError(t, h.stopPeer(p))
			heal()
		}
		h.startAll()
		h.proposeAll(t, h.peers[0], "a")
		h.requireUpdates(t, h.peers, "a")
	})
}

// TestFoundCluster_IsNotRepeatedWithLaterPeers checks that an initial voter that has received nothing from
// other peers does not found the cluster again if its configuration now lists peers that joined later.
func TestFoundCluster_IsNotRepeatedWithLaterPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, 3)
		a, b, c := h.peers[0], h.peers[1], h.peers[2]
		heal := h.isolate(a)
		h.startPeer(a)
		require.NoError(t, h.stopPeer(a))
		heal()
		h.startPeer(b)
		h.startPeer(c)
		h.proposeAll(t, b, "a")
		h.startPeer(a, withInitialVoters(a, b, peerInfo(4)))
		h.requireUpdates(t, h.peers, "a")
		require.Contains(t, h.logOf(a), "this directory was founded with another configuration")
	})
}

// TestFoundCluster_CompletesAfterKill checks that a peer that is killed at any operation while it founds the
// cluster again is a member of the cluster after its next start.
func TestFoundCluster_CompletesAfterKill(t *testing.T) {
	for op := 1; ; op++ {
		complete := false
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, 3)
			a, b, c := h.peers[0], h.peers[1], h.peers[2]
			heal := h.isolate(a)
			h.startPeer(a, withInitialVoters(a, b, peerInfo(5)))
			require.NoError(t, h.stopPeer(a))
			heal()
			h.startPeer(b)
			h.startPeer(c)
			h.proposeAll(t, b, "a")
			d := h.disks[a.ID]
			d.CrashAt(d.Ops() + op)
			n, err := h.openPeer(a)
			if complete = err == nil; complete {
				_ = n.Close()
			}
			h.mu.Lock()
			h.disks[a.ID] = d.Crash()
			delete(h.nodes, a.ID)
			h.mu.Unlock()
			h.startPeer(a)
			h.requireUpdates(t, h.peers, "a")
		})
		if complete {
			require.Greater(t, op, 5)
			return
		}
	}
}

// TestFoundCluster_RequiresListening checks that a peer that cannot listen at its address does not found the
// cluster.
func TestFoundCluster_RequiresListening(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	addr := l.Addr().String()
	dir := t.TempDir()
	_, err = raftlog.Open(raftlog.Config{
		Cluster: "test", ID: "a", Addr: addr, Dir: dir, Peers: []api.Peer{{ID: "a", Addr: addr}}, Insecure: true,
	})
	require.ErrorContains(t, err, "listen")
	require.NoFileExists(t, dir+"/snap")
}
