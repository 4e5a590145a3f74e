package raftlog_test

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

// requireIdentityError requires that Open returns ErrIdentity, or that the peer stops with ErrIdentity later,
// and that the error contains the text says.
func (h *harness) requireIdentityError(t testing.TB, p api.Peer, says string, opts ...func(*raftlog.Config)) {
	t.Helper()
	n, err := h.openPeer(p, opts...)
	if err == nil {
		waitFor(t, p.ID+" has stopped", func() bool { return n.Err() != nil })
		err = h.stopPeer(p)
	}
	require.ErrorIs(t, err, api.ErrIdentity)
	require.ErrorIs(t, err, api.ErrFault)
	require.ErrorContains(t, err, says)
	require.NotContains(t, err.Error(), "\n", "the error must have one line")
}

// stopAll closes all peers that run.
func (h *harness) stopAll() {
	for _, n := range h.runningNodes() {
		_ = h.stopPeer(n.Info().Peer)
	}
}

func removeAll(t testing.TB, d *testenv.Disk, dir string) {
	t.Helper()
	names, err := d.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		if f, err := d.OpenRead(dir + "/" + name); err == nil {
			require.NoError(t, f.Close())
		} else {
			removeAll(t, d, dir+"/"+name)
		}
		require.NoError(t, d.Remove(dir+"/"+name))
	}
}

// copyDisk returns a disk with the same files, except for the lock of the directory.
func copyDisk(t testing.TB, d *testenv.Disk) *testenv.Disk {
	t.Helper()
	to := testenv.NewDisk(9)
	var copyDir func(dir string)
	copyDir = func(dir string) {
		require.NoError(t, to.MkdirAll(dir))
		names, err := d.List(dir)
		require.NoError(t, err)
		for _, name := range names {
			name = path.Join(dir, name)
			if strings.EqualFold(path.Base(name), "lock") {
				continue
			}
			content, err := disk.ReadSmall(d, name)
			if err != nil {
				copyDir(name)
				continue
			}
			require.NoError(t, disk.Replace(to, name, content))
		}
		require.NoError(t, to.SyncDir(dir))
	}
	copyDir(".")
	return to
}

// TestIdentity_RejectsPeerThatLostItsDirectory checks that a peer that has lost its directory, its log or its
// snapshot stops with ErrIdentity after all peers were restarted, although no peer remembers what it has
// acknowledged.
func TestIdentity_RejectsPeerThatLostItsDirectory(t *testing.T) {
	for what, says := range map[string]string{
		"all": "does not have the data", "log": "the log was lost", "segments": "files of the log", "snapshot": "snapshot in directory", "peer.json": "not the whole directory",
	} {
		t.Run(what, func(t *testing.T) {
			runCluster(t, 3, func(t *testing.T, h *harness) {
				a, b, c := h.peers[0], h.peers[1], h.peers[2]
				h.proposeAll(t, a, "one")
				h.requireUpdates(t, h.peers, "one")
				require.NoError(t, h.stopPeer(c))
				h.proposeAll(t, a, "two", "three")
				h.stopAll()
				d := h.disks[b.ID]
				switch what {
				case "all":
					h.disks[b.ID] = testenv.NewDisk(7)
				case "log":
					removeAll(t, d, "log")
					require.NoError(t, d.Remove("log"))
				case "segments":
					for _, name := range h.listFiles(t, b, "log", "0") {
						require.NoError(t, d.Remove("log/"+name))
					}
				case "snapshot":
					require.NoError(t, d.Remove("snap"))
				case "peer.json":
					require.NoError(t, d.Remove("peer.json"))
				}
				h.startPeer(c)
				h.requireIdentityError(t, b, says)
				if what == "all" {
					require.Empty(t, h.listFiles(t, b, ".", "snap"), "the peer has founded the cluster again")
				}
				require.NotEqual(t, "leader", h.nodeOf(c).Info().Role)
				h.startPeer(a)
				h.proposeAll(t, c, "four")
				h.requireUpdates(t, []api.Peer{a, c}, "one", "two", "three", "four")
			})
		})
	}
}

// TestIdentity_RecognizesLostDirectoryThroughThirdPeer checks that a peer recognizes that another peer has lost
// its directory, although it has learned the identity of that directory only from a third peer.
func TestIdentity_RecognizesLostDirectoryThroughThirdPeer(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		a, b, c := h.peers[0], h.peers[1], h.peers[2]
		d := peerInfo(3)
		h.waitForLeader(t)
		h.requireUpdates(t, h.peers)
		require.NoError(t, h.stopPeer(b))
		h.startPeer(d)
		h.changeVoters(t, a, a, b, c, d)
		h.stopAll()
		h.disks[b.ID] = testenv.NewDisk(7)
		h.startPeer(d)
		h.requireIdentityError(t, b, "does not have the data")
	})
}

// TestIdentity_RejectsJoinOfVoterThatLostDirectory checks that a voter that has lost its directory cannot join
// the cluster again, even if the other peers have lost their records of that directory.
func TestIdentity_RejectsJoinOfVoterThatLostDirectory(t *testing.T) {
	runCluster(t, 1, func(t *testing.T, h *harness) {
		a, d := h.peers[0], peerInfo(3)
		h.startPeer(d)
		h.changeVoters(t, a, a, d)
		h.compact(t, a)
		h.stopAll()
		require.NoError(t, h.disks[a.ID].Remove(identity.PeersFile))
		h.disks[d.ID] = testenv.NewDisk(7)
		h.startPeer(a)
		for range 2 {
			h.requireIdentityError(t, d, "p3 is a voter of the cluster")
		}
	})
}

// TestIdentity_RejectsPeerOfSecondFounding checks that a peer that has founded a cluster of the same name with
// other initial voters stops with ErrIdentity.
func TestIdentity_RejectsPeerOfSecondFounding(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		h.proposeAll(t, h.peers[0], "a")
		d := peerInfo(3)
		for range 2 {
			h.requireIdentityError(t, d, "created separately", withInitialVoters(h.peers[0], h.peers[1], d))
		}
		h.proposeAll(t, h.peers[0], "b")
		h.requireUpdates(t, h.peers, "a", "b")
		require.Empty(t, membershipOf(t, h.nodeOf(h.peers[0])).Learners)
		h.startPeer(d) // without the option, Config.Peers does not list d, so d joins the cluster instead of founding one
		h.requireUpdates(t, []api.Peer{d}, "a", "b")
	})
}

// TestIdentity_RejectsDirectoryRestoredToEarlierState checks that a majority of the peers recognizes a
// directory that was restored to an earlier state, although all peers were restarted and do not remember what
// its peer has acknowledged.
func TestIdentity_RejectsDirectoryRestoredToEarlierState(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		a, b, c := h.peers[0], h.peers[1], h.peers[2]
		h.waitForLeader(t)
		require.NoError(t, h.stopPeer(b))
		old := h.disks[b.ID].Crash()
		h.disks[b.ID] = old.Crash()
		h.startPeer(b)
		h.proposeAll(t, b, "a")
		h.requireUpdates(t, h.peers, "a")
		h.stopAll()
		h.disks[b.ID] = old.Crash()
		h.startPeer(c)
		n := h.startPeer(b)
		time.Sleep(time.Minute)
		require.NoError(t, n.Err(), "one peer alone must not stop another peer")
		require.NotEqual(t, "leader", n.Info().Role)
		h.startPeer(a)
		waitFor(t, b.ID+" has stopped", func() bool { return n.Err() != nil })
		require.ErrorContains(t, h.stopPeer(b), "restored to an earlier state")
		h.proposeAll(t, c, "b")
		h.requireUpdates(t, []api.Peer{a, c}, "a", "b")
	})
}

// TestIdentity_StopsProcessWithCopiedDirectory checks that a process with a copy of the directory of a running
// peer stops with ErrIdentity, and that the running peer continues.
func TestIdentity_StopsProcessWithCopiedDirectory(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		b := h.peers[1]
		h.proposeAll(t, b, "a")
		original := h.nodeOf(b)
		h.disks[b.ID] = copyDisk(t, h.disks[b.ID])
		// The process with the copied directory listens at another address than the peer.
		n, err := h.openPeer(api.Peer{ID: b.ID, Addr: "host8:1"}, func(c *raftlog.Config) {
			c.Addr = b.Addr
		})
		require.NoError(t, err)
		start := time.Now()
		waitFor(t, "the copy has stopped", func() bool { return n.Err() != nil })
		require.ErrorIs(t, n.Err(), api.ErrIdentity)
		require.ErrorContains(t, n.Err(), "another process")
		require.Less(t, time.Since(start), 30*time.Second)
		require.Error(t, n.Close())
		require.NoError(t, original.Err())
		h.mu.Lock()
		h.nodes[b.ID] = original
		h.mu.Unlock()
		h.proposeAll(t, b, "b")
		time.Sleep(time.Minute)
		require.NoError(t, original.Err())
	})
}

// TestIdentity_AcceptsPeerAfterKillOrPowerFailure checks that the other peers accept a peer that was killed, or
// whose machine has lost power, when it returns, and do not take it for a process with a copied directory.
func TestIdentity_AcceptsPeerAfterKillOrPowerFailure(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		for range 5 {
			for _, p := range h.peers {
				h.crashPeer(p)
				h.startPeer(p)
				h.proposeAll(t, p, "a")
			}
		}
		// Do not close the connections of the first peer, so that the other peers do not notice that the peer
		// has stopped.
		p := h.peers[0]
		heal := h.isolate(p)
		h.disks[p.ID] = h.disks[p.ID].Crash()
		_ = h.stopPeer(p)
		heal()
		h.startPeer(p)
		h.proposeAll(t, p, "b")
	})
}

// TestRefusal_ByMinorityDoesNotStopPeer checks that a peer that has stored entries continues while only a
// minority of the voters refuses it, and stops when a majority does.
func TestRefusal_ByMinorityDoesNotStopPeer(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		a, b, c := h.peers[0], h.peers[1], h.peers[2]
		n := h.nodeOf(a)
		h.proposeAll(t, a, "a")
		for _, reason := range []link.Reason{
			link.ReasonFounding, link.ReasonRunning, link.ReasonCluster, link.ReasonRecovered, link.ReasonInstance, link.ReasonEarlier, link.ReasonUncommitted,
		} {
			for range 12 { // for 12 s, because refusals with some reasons count only after ten seconds
				n.HandleRefusal(b.ID, &link.RefusedError{Reason: reason})
				n.HandleRefusal("z", &link.RefusedError{Reason: reason})
				time.Sleep(time.Second)
			}
			require.NoError(t, n.Err())
			require.Equal(t, reason != link.ReasonCluster, strings.Contains(h.logOf(a), reason.String()))
		}
		h.proposeAll(t, a, "b")
		n.HandleRefusal(c.ID, &link.RefusedError{Reason: link.ReasonInstance})
		n.HandleRefusal(b.ID, &link.RefusedError{Reason: link.ReasonInstance})
		require.ErrorIs(t, n.Err(), api.ErrIdentity)
		require.ErrorContains(t, n.Err(), "a majority of the voters")
	})
}

// damagePeers replaces what peer p has recorded about the directories of other peers by wrong records with a
// correct checksum.
func (h *harness) damagePeers(t testing.TB, p api.Peer, ids ...string) {
	t.Helper()
	known, err := identity.ReadPeers(h.disks[p.ID])
	require.NoError(t, err)
	for _, id := range ids {
		k, met := known[id]
		require.True(t, met)
		k.Instance, k.Start = identity.New(), k.Start+1_000_000
		known[id] = k
	}
	require.NoError(t, identity.WritePeers(h.disks[p.ID], known))
}

// TestKnownPeers_WrongRecordsDoNotStopOtherPeers checks that the wrong records of one peer about the others do
// not stop them, and do not prevent them from committing entries.
func TestKnownPeers_WrongRecordsDoNotStopOtherPeers(t *testing.T) {
	for name, wrong := range map[string][]string{"one": {"p1"}, "all": {"p0", "p1"}} {
		t.Run(name, func(t *testing.T) {
			runCluster(t, 3, func(t *testing.T, h *harness) {
				a, b, c := h.peers[0], h.peers[1], h.peers[2]
				h.proposeAll(t, a, "a")
				h.requireUpdates(t, h.peers, "a")
				require.NoError(t, h.stopPeer(c))
				h.damagePeers(t, c, wrong...)
				h.startPeer(c)
				for range 3 {
					// Sleep longer than ten seconds: refusals that are repeated for this time can stop a
					// peer.
					time.Sleep(15 * time.Second)
					h.proposeAll(t, b, "b")
					for _, p := range []api.Peer{a, b} {
						h.restart(t, p)
					}
				}
				h.requireUpdates(t, []api.Peer{a, b}, "a", "b", "b", "b")
				require.Contains(t, h.logOf(b), "another peer refuses this one")
				// Apply the remedy that peer b has logged.
				require.NoError(t, h.stopPeer(c))
				require.NoError(t, h.disks[c.ID].Remove(identity.PeersFile))
				h.startPeer(c)
				h.requireUpdates(t, h.peers, "a", "b", "b", "b")
			})
		})
	}
}
