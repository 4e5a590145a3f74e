package raftlog_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/crashdisk"
)

// requireIdentityError requires that Open returns ErrIdentity, or that the peer stops with it later.
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
	require.NotContains(t, err.Error(), "\n", "it is one line")
}

// stopAll closes all peers that run.
func (h *harness) stopAll() {
	for _, id := range slices.Sorted(maps.Keys(h.nodes)) {
		_ = h.stopPeer(h.peers[slices.IndexFunc(h.peers, func(p api.Peer) bool { return p.ID == id })])
	}
}

func removeAll(t testing.TB, d *crashdisk.Disk, dir string) {
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

// copyDisk returns a disk with the same files.
func copyDisk(t testing.TB, d *crashdisk.Disk) *crashdisk.Disk {
	t.Helper()
	to := crashdisk.New(rand.New(rand.NewPCG(9, 9)))
	var copyDir func(dir string)
	copyDir = func(dir string) {
		require.NoError(t, to.MkdirAll(dir))
		names, err := d.List(dir)
		require.NoError(t, err)
		for _, name := range names {
			name = path.Join(dir, name)
			f, err := d.OpenRead(name)
			if err != nil {
				copyDir(name)
				continue
			}
			size, err := f.Size()
			require.NoError(t, err)
			content := make([]byte, size)
			_, err = f.ReadAt(content, 0)
			require.NoError(t, errors.Join(err, f.Close()))
			if strings.EqualFold(path.Base(name), "lock") {
				continue
			}
			g, err := to.Create(name)
			require.NoError(t, err)
			_, err = g.WriteAt(content, 0)
			require.NoError(t, errors.Join(err, g.Sync(), g.Close()))
		}
		require.NoError(t, to.SyncDir(dir))
	}
	copyDir(".")
	return to
}

// TestIdentity_LostDirectory fails if a peer that has lost its directory, its log or its snapshot
// participates after all peers were restarted, so that no peer remembers what it has acknowledged.
func TestIdentity_LostDirectory(t *testing.T) {
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
					h.disks[b.ID] = crashdisk.New(rand.New(rand.NewPCG(7, 7)))
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
				require.NotEqual(t, "leader", h.node(c).Info().Role)
				h.startPeer(a)
				h.proposeAll(t, c, "four")
				h.requireUpdates(t, []api.Peer{a, c}, "one", "two", "three", "four")
			})
		})
	}
}

// TestIdentity_LearnedFromThirdPeer fails if a peer does not recognize a lost directory of a peer
// that it knows from a third peer only.
func TestIdentity_LearnedFromThirdPeer(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		a, b, c := h.peers[0], h.peers[1], h.peers[2]
		d := peerInfo(3)
		h.waitForLeader(t)
		h.requireUpdates(t, h.peers)
		require.NoError(t, h.stopPeer(b))
		h.startPeer(d)
		h.changeVoters(t, a, a, b, c, d)
		h.stopAllAnd(t, d)
		h.disks[b.ID] = crashdisk.New(rand.New(rand.NewPCG(7, 7)))
		h.startPeer(d)
		h.requireIdentityError(t, b, "does not have the data")
	})
}

func (h *harness) stopAllAnd(t testing.TB, more api.Peer) {
	t.Helper()
	require.NoError(t, h.stopPeer(more))
	h.stopAll()
}

// TestIdentity_SecondFounding fails if a peer that founds a second configuration of the cluster takes
// part.
func TestIdentity_SecondFounding(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		h.proposeAll(t, h.peers[0], "a")
		d := peerInfo(3)
		own := func(c *raftlog.Config) { c.Peers = []api.Peer{h.peers[0], h.peers[1], d} }
		h.requireIdentityError(t, d, "created separately", own)
		h.requireIdentityError(t, d, "created separately", own)
		h.proposeAll(t, h.peers[0], "b")
		h.requireUpdates(t, h.peers, "a", "b")
		require.Empty(t, membershipOf(t, h.node(h.peers[0])).Learners)
		h.startPeer(d) // its configuration is that of a joining peer: it has not founded a cluster
		h.requireUpdates(t, []api.Peer{d}, "a", "b")
	})
}

// TestIdentity_NoFoundingAfterLoss fails if a peer that has lost its directory founds the cluster
// again.
func TestIdentity_NoFoundingAfterLoss(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		b := h.peers[1]
		h.requireUpdates(t, h.peers)
		require.NoError(t, h.stopPeer(b))
		h.disks[b.ID] = crashdisk.New(rand.New(rand.NewPCG(7, 7)))
		_, err := h.openPeer(b)
		require.ErrorIs(t, err, api.ErrIdentity)
		require.Empty(t, h.listFiles(t, b, ".", "snap"))
	})
}

// TestFounding_Alone fails if a founding peer waits long for peers that cannot be reached.
func TestFounding_Alone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, 3)
		defer h.isolate(h.peers[0])()
		start := time.Now()
		h.startPeer(h.peers[0])
		require.Less(t, time.Since(start), 5*time.Second)
	})
}

// TestIdentity_EarlierDirectory fails if a directory that was restored to an earlier state is not
// recognized by peers that do not remember its acknowledgements.
func TestIdentity_EarlierDirectory(t *testing.T) {
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
		h.requireIdentityError(t, b, "restored to an earlier state")
		h.startPeer(a)
		h.proposeAll(t, c, "b")
		h.requireUpdates(t, []api.Peer{a, c}, "a", "b")
	})
}

// TestIdentity_CopiedDirectory fails if a process with a copy of the directory of a running peer
// participates, or if the running peer stops.
func TestIdentity_CopiedDirectory(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		b := h.peers[1]
		h.proposeAll(t, b, "a")
		original := h.node(b)
		h.disks[b.ID] = copyDisk(t, h.disks[b.ID])
		// The copy has another address than the peer.
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

// TestIdentity_RestartIsNotACopy fails if a peer that was killed, or whose machine has lost power, is
// not accepted when it returns.
func TestIdentity_RestartIsNotACopy(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		for range 5 {
			for _, p := range h.peers {
				h.crashPeer(p)
				h.startPeer(p)
				h.proposeAll(t, p, "a")
			}
		}
		// Its connections are not closed, so the other peers do not notice that it stopped.
		p := h.peers[0]
		heal := h.isolate(p)
		h.mu.Lock()
		h.disks[p.ID] = h.disks[p.ID].Crash()
		h.mu.Unlock()
		_ = h.stopPeer(p)
		heal()
		h.startPeer(p)
		h.proposeAll(t, p, "b")
	})
}

// TestRefusal_ByOtherCluster fails if a peer with committed entries stops because another cluster
// refuses it.
func TestRefusal_ByOtherCluster(t *testing.T) {
	runCluster(t, 1, func(t *testing.T, h *harness) {
		n := h.node(h.peers[0])
		h.proposeAll(t, h.peers[0], "a")
		n.HandleRefusal("z", &link.RefusedError{Reason: link.ReasonFounding})
		n.HandleRefusal("z", &link.RefusedError{Reason: link.ReasonRunning})
		n.HandleRefusal("z", &link.RefusedError{Reason: link.ReasonCluster})
		h.proposeAll(t, h.peers[0], "b")
		n.HandleRefusal("z", &link.RefusedError{Reason: link.ReasonRecovered})
		require.ErrorIs(t, n.Err(), api.ErrIdentity)
	})
}
