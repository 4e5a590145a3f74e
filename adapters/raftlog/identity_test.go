package raftlog_test

// Peers that must not take part with the data that they have.

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

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk/crashdisk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// mistaken waits for the end of a peer by an ErrIdentity, by Open or later.
func (w *world) mistaken(t testing.TB, p api.Peer, says string, opts ...func(*raftlog.Config)) {
	t.Helper()
	n, err := w.open(p, opts...)
	if err == nil {
		await(t, p.ID+" has stopped", func() bool { return n.Err() != nil })
		err = w.stop(p)
	}
	require.ErrorIs(t, err, api.ErrIdentity)
	require.ErrorIs(t, err, api.ErrFault)
	require.ErrorContains(t, err, says)
	require.NotContains(t, err.Error(), "\n", "it is one line")
}

// stopAll closes all peers that run.
func (w *world) stopAll() {
	for _, id := range slices.Sorted(maps.Keys(w.nodes)) {
		_ = w.stop(w.peers[slices.IndexFunc(w.peers, func(p api.Peer) bool { return p.ID == id })])
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

// copyOf is a disk with the same files.
func copyOf(t testing.TB, d *crashdisk.Disk) *crashdisk.Disk {
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

// After a restart of all peers nobody remembers what a peer has acknowledged. One that has lost
// its directory, or its log, does not take part all the same; what was acknowledged is kept.
func TestLostDirectory(t *testing.T) {
	for what, says := range map[string]string{
		"all": "does not have the data", "log": "the log was lost", "segments": "files of the log", "snapshot": "snapshot in directory", "peer.json": "not the whole directory",
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				a, b, c := w.peers[0], w.peers[1], w.peers[2]
				w.propose(t, a, "one")
				w.has(t, w.peers, "one")
				require.NoError(t, w.stop(c))
				w.propose(t, a, "two", "three")
				w.stopAll()
				d := w.disks[b.ID]
				switch what {
				case "all":
					w.disks[b.ID] = crashdisk.New(rand.New(rand.NewPCG(7, 7)))
				case "log":
					removeAll(t, d, "log")
					require.NoError(t, d.Remove("log"))
				case "segments":
					for _, name := range w.files(t, b, "log", "0") {
						require.NoError(t, d.Remove("log/"+name))
					}
				case "snapshot":
					require.NoError(t, d.Remove("snap"))
				case "peer.json":
					require.NoError(t, d.Remove("peer.json"))
				}
				w.start(c)
				w.mistaken(t, b, says)
				require.NotEqual(t, "leader", w.node(c).Info().Role)
				w.start(a)
				w.propose(t, c, "four")
				w.has(t, []api.Peer{a, c}, "one", "two", "three", "four")
			})
		})
	}
}

// A peer that has met another one only by what a third peer has told it knows its data as well.
func TestLostDirectoryIsKnownByHearsay(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		a, b, c := w.peers[0], w.peers[1], w.peers[2]
		d := peer(3)
		w.leader(t)
		w.has(t, w.peers)
		require.NoError(t, w.stop(b))
		w.start(d)
		w.change(t, a, a, b, c, d)
		w.stopAll4(t, d)
		w.disks[b.ID] = crashdisk.New(rand.New(rand.NewPCG(7, 7)))
		w.start(d)
		w.mistaken(t, b, "does not have the data")
	})
}

func (w *world) stopAll4(t testing.TB, more api.Peer) {
	t.Helper()
	require.NoError(t, w.stop(more))
	w.stopAll()
}

// A peer that founds a second configuration of the cluster is told so, and ends.
func TestSecondFounding(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.propose(t, w.peers[0], "a")
		d := peer(3)
		own := func(c *raftlog.Config) { c.Peers = []api.Peer{w.peers[0], w.peers[1], d} }
		w.mistaken(t, d, "created separately", own)
		w.mistaken(t, d, "created separately", own)
		w.propose(t, w.peers[0], "b")
		w.has(t, w.peers, "a", "b")
		require.Empty(t, members(t, w.node(w.peers[0])).Learners)
		w.start(d) // with the peers of the cluster it joins: it has founded nothing
		w.has(t, []api.Peer{d}, "a", "b")
	})
}

// A peer that has lost its directory is told so before it founds the cluster once more.
func TestLostDirectoryIsNotFounded(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		b := w.peers[1]
		w.has(t, w.peers)
		require.NoError(t, w.stop(b))
		w.disks[b.ID] = crashdisk.New(rand.New(rand.NewPCG(7, 7)))
		_, err := w.open(b)
		require.ErrorIs(t, err, api.ErrIdentity)
		require.Empty(t, w.files(t, b, ".", "snap"))
	})
}

// A founding peer does not wait long for those that cannot be reached.
func TestFoundingAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		defer w.isolate(w.peers[0])()
		began := time.Now()
		w.start(w.peers[0])
		require.Less(t, time.Since(began), 5*time.Second)
	})
}

// A directory that was put back to an earlier state is known to be, by peers that do not
// remember what was acknowledged.
func TestEarlierDirectory(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		a, b, c := w.peers[0], w.peers[1], w.peers[2]
		w.leader(t)
		require.NoError(t, w.stop(b))
		old := w.disks[b.ID].Crash()
		w.disks[b.ID] = old.Crash()
		w.start(b)
		w.propose(t, b, "a")
		w.has(t, w.peers, "a")
		w.stopAll()
		w.disks[b.ID] = old.Crash()
		w.start(c)
		w.mistaken(t, b, "restored to an earlier state")
		w.start(a)
		w.propose(t, c, "b")
		w.has(t, []api.Peer{a, c}, "a", "b")
	})
}

// A process with a copy of the directory of a peer that runs does not take part, and the peer
// goes on.
func TestCopiedDirectory(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		b := w.peers[1]
		w.propose(t, b, "a")
		original := w.node(b)
		w.disks[b.ID] = copyOf(t, w.disks[b.ID])
		// It is at another address, which is not that of the peer.
		n, err := w.open(api.Peer{ID: b.ID, Addr: "host8:1"}, func(c *raftlog.Config) {
			c.Addr = b.Addr
		})
		require.NoError(t, err)
		began := time.Now()
		await(t, "the copy has stopped", func() bool { return n.Err() != nil })
		require.ErrorIs(t, n.Err(), api.ErrIdentity)
		require.ErrorContains(t, n.Err(), "another process")
		require.Less(t, time.Since(began), 30*time.Second)
		require.Error(t, n.Close())
		require.NoError(t, original.Err())
		w.mu.Lock()
		w.nodes[b.ID] = original
		w.mu.Unlock()
		w.propose(t, b, "b")
		time.Sleep(time.Minute)
		require.NoError(t, original.Err())
	})
}

// A peer that was killed comes back at once, and after its machine has lost power.
func TestRestartIsNoCopy(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		for range 5 {
			for _, p := range w.peers {
				w.crash(p)
				w.start(p)
				w.propose(t, p, "a")
			}
		}
		// Its connections are not closed: nobody hears of its end.
		p := w.peers[0]
		heal := w.isolate(p)
		w.mu.Lock()
		w.disks[p.ID] = w.disks[p.ID].Crash()
		w.mu.Unlock()
		_ = w.stop(p)
		heal()
		w.start(p)
		w.propose(t, p, "b")
	})
}

// Registries decide by what they know, whatever the order in which they hear it.
func TestRegistry(t *testing.T) {
	claim := link.Claim{Founding: "f", Instance: "i", Start: 3, Process: "p"}
	with := func(change func(*link.Claim)) link.Claim {
		c := claim
		change(&c)
		return c
	}
	r := identity.Registry{Founding: "f", Former: []string{"e"}}
	changed, first, refused := r.Meet("b", claim)
	require.True(t, changed && first)
	require.Nil(t, refused)
	changed, _, refused = r.Meet("b", claim)
	require.False(t, changed)
	require.Nil(t, refused)
	for reason, c := range map[link.Reason][]link.Claim{
		link.ReasonFounding:  {with(func(c *link.Claim) { c.Founding = "g" })},
		link.ReasonRecovered: {with(func(c *link.Claim) { c.Founding = "e" })},
		link.ReasonInstance:  {with(func(c *link.Claim) { c.Instance = "j" }), with(func(c *link.Claim) { c.Instance = "" }), with(func(c *link.Claim) { c.Instance, c.Founding = "j", "" })},
		link.ReasonEarlier:   {with(func(c *link.Claim) { c.Start = 2 }), with(func(c *link.Claim) { c.Process = "q" })},
	} {
		for _, c := range c {
			_, _, refused := r.Meet("b", c)
			require.NotNil(t, refused, reason)
			require.Equal(t, reason, refused.Reason)
		}
	}
	changed, first, refused = r.Meet("b", with(func(c *link.Claim) { c.Start, c.Process = 4, "q" }))
	require.True(t, changed && !first)
	require.Nil(t, refused)

	_, _, refused = r.Meet("z", with(func(c *link.Claim) { c.Instance = "" }))
	require.NotNil(t, refused, "its directory is not known, and never would be")

	changed, contradicted := r.Learn(map[string]string{"b": "other", "c": "k", "": ""})
	require.True(t, changed)
	require.Equal(t, []string{"b"}, contradicted)
	_, _, refused = r.Meet("c", claim)
	require.NotNil(t, refused)
	require.Equal(t, map[string]string{"b": "i", "c": "k"}, r.Instances())
}

// A cluster that has committed entries does not end because another one refuses it.
func TestRefusedByAnotherCluster(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n := w.node(w.peers[0])
		w.propose(t, w.peers[0], "a")
		n.HandleRefusal("z", &link.RefusedError{Reason: link.ReasonFounding})
		n.HandleRefusal("z", &link.RefusedError{Reason: link.ReasonRunning})
		n.HandleRefusal("z", &link.RefusedError{Reason: link.ReasonCluster})
		w.propose(t, w.peers[0], "b")
		n.HandleRefusal("z", &link.RefusedError{Reason: link.ReasonRecovered})
		require.ErrorIs(t, n.Err(), api.ErrIdentity)
	})
}

func TestFoundingIdentity(t *testing.T) {
	a, b := api.Peer{ID: "a", Addr: "a:1"}, api.Peer{ID: "b", Addr: "b:1"}
	is := identity.Founding("x", []api.Peer{a, b}, time.Hour, time.Second)
	require.Equal(t, is, identity.Founding("x", []api.Peer{b, a}, time.Hour, time.Second))
	for _, other := range []string{
		identity.Founding("y", []api.Peer{a, b}, time.Hour, time.Second),
		identity.Founding("x", []api.Peer{a}, time.Hour, time.Second),
		identity.Founding("x", []api.Peer{a, {ID: "b", Addr: "b:2"}}, time.Hour, time.Second),
		identity.Founding("x", []api.Peer{a, b}, time.Minute, time.Second),
		identity.Founding("x", []api.Peer{a, b}, time.Hour, time.Minute),
		identity.Founding("xa", []api.Peer{a, b}, time.Hour, time.Second),
	} {
		require.NotEqual(t, is, other)
	}
}
