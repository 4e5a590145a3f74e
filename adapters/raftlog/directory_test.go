package raftlog_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/crashdisk"
)

// TestOpen_EarlierFormat fails if a node opens a directory of an earlier format, whose records it
// cannot decode, or if the error does not name the cause.
func TestOpen_EarlierFormat(t *testing.T) {
	for _, format := range []string{"1", "2", "4"} {
		runCluster(t, 1, func(t *testing.T, h *harness) {
			p := h.peers[0]
			require.NoError(t, h.stopPeer(p))
			d := h.disks[p.ID]
			text, err := disk.ReadSmall(d, "peer.json")
			require.NoError(t, err)
			require.NoError(t, disk.Replace(d, "peer.json", bytes.Replace(text, []byte(`"format":3`), []byte(`"format":`+format), 1)))
			_, err = h.openPeer(p)
			require.ErrorIs(t, err, api.ErrInvalid)
			require.ErrorContains(t, err, "format "+format)
		})
	}
}

// TestOpen_DamagedFiles fails if a peer is opened with damaged files, or if Open changes them.
func TestOpen_DamagedFiles(t *testing.T) {
	for _, what := range []string{"log", "snap", "peer.json", "no snap"} {
		runCluster(t, 3, func(t *testing.T, h *harness) {
			p := h.others(h.waitForLeader(t))[0]
			h.proposeAll(t, p, numbered("a", 50)...)
			_, err := h.node(p).Compact(contextWithin(t, time.Minute))
			require.NoError(t, err)
			require.NoError(t, h.stopPeer(p))
			d := h.disks[p.ID]
			name := what
			switch what {
			case "log":
				name = "log/" + h.listFiles(t, p, "log", "0")[0]
			case "no snap":
				require.NoError(t, d.Remove("snap"))
			}
			if what != "no snap" {
				damageFile(t, d, name)
			}
			before, err := d.List("log")
			require.NoError(t, err)
			for range 2 {
				_, err = h.openPeer(p)
				require.ErrorIs(t, err, api.ErrFault, what)
			}
			after, err := d.List("log")
			require.NoError(t, err)
			require.Equal(t, before, after)
			h.proposeAll(t, h.others(p)[0], "x")
		})
	}
}

// damageFile changes a byte in the first part of a file.
func damageFile(t testing.TB, d *crashdisk.Disk, name string) {
	t.Helper()
	f, err := d.Open(name)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	at, b := min(size/2, 700), make([]byte, 1)
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= 0x11
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

// TestOpen_OtherDirectory fails if the directory of another peer, or of a running peer, is accepted.
func TestOpen_OtherDirectory(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.peers[0]
		d := h.disks[p.ID]
		open := func(id, cluster, addr string) error {
			h.mu.Lock()
			h.disks[id] = d
			h.mu.Unlock()
			_, err := h.openPeer(api.Peer{ID: id, Addr: addr}, func(c *raftlog.Config) { c.Cluster = cluster })
			return err
		}
		require.ErrorIs(t, open(p.ID, "test", "host7:1"), api.ErrInvalid)
		err := open("p7", "test", "host7:1")
		require.ErrorIs(t, err, api.ErrInvalid)
		require.ErrorContains(t, err, "in use")
		h.proposeAll(t, p, "b")
		require.NoError(t, h.stopPeer(p))
		require.ErrorIs(t, open("p7", "test", "host7:1"), api.ErrInvalid)
		require.ErrorIs(t, open(p.ID, "other", p.Addr), api.ErrInvalid)
		_, err = h.openPeer(p, func(c *raftlog.Config) { c.ElectionTimeout, c.Heartbeat = time.Second, 0 })
		require.ErrorIs(t, err, api.ErrInvalid, "the cluster has another election timeout")
		h.startPeer(p)
		h.requireUpdates(t, h.peers, "b")
	})
}
