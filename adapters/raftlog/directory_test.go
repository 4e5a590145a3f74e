package raftlog_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

// TestOpen_RejectsDirectoryOfOtherFormat checks that Open rejects a directory of an earlier or later format,
// whose records it cannot decode, and that the error names the format.
func TestOpen_RejectsDirectoryOfOtherFormat(t *testing.T) {
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

// TestOpen_BrokenFileStopsOnlyItsPeer checks that a broken file of one peer does not stop other peers, and that
// Open of this peer either succeeds or, if the peer may have lost what it has acknowledged, returns an error
// that names the file and the remedy.
func TestOpen_BrokenFileStopsOnlyItsPeer(t *testing.T) {
	const segment = "SEGMENT" // a placeholder for the name of the first segment of the log
	write := func(name string, content []byte) func(t *testing.T, h *harness, d *testenv.Disk) {
		return func(t *testing.T, _ *harness, d *testenv.Disk) { require.NoError(t, disk.Replace(d, name, content)) }
	}
	edit := func(name string, change func(content []byte) []byte) func(t *testing.T, h *harness, d *testenv.Disk) {
		return func(t *testing.T, h *harness, d *testenv.Disk) {
			name := strings.Replace(name, segment, firstSegment(t, d), 1)
			content, err := disk.ReadSmall(d, name)
			require.NoError(t, err)
			require.NoError(t, d.Remove(name))
			write(name, change(bytes.Clone(content)))(t, h, d)
		}
	}
	flip := func(content []byte) []byte { content[min(len(content)/2, 700)] ^= 0x11; return content }
	half := func(content []byte) []byte { return content[:min(len(content)/2, 300)] }
	empty := func([]byte) []byte { return nil }
	remove := func(name string) func(t *testing.T, h *harness, d *testenv.Disk) {
		return func(t *testing.T, _ *harness, d *testenv.Disk) {
			require.NoError(t, d.Remove(strings.Replace(name, segment, firstSegment(t, d), 1)))
		}
	}
	directory := func(name string) func(t *testing.T, h *harness, d *testenv.Disk) {
		return func(t *testing.T, h *harness, d *testenv.Disk) {
			name := strings.Replace(name, segment, firstSegment(t, d), 1)
			if err := d.Remove(name); !errors.Is(err, fs.ErrNotExist) {
				require.NoError(t, err)
			}
			require.NoError(t, d.MkdirAll(name))
			write(name+"/x", nil)(t, h, d)
		}
	}
	ofOther := func(name string) func(t *testing.T, h *harness, d *testenv.Disk) {
		return func(t *testing.T, h *harness, d *testenv.Disk) {
			other := h.disks[h.peers[0].ID]
			if other == d {
				other = h.disks[h.peers[1].ID]
			}
			content, err := disk.ReadSmall(other, strings.Replace(name, segment, firstSegment(t, other), 1))
			require.NoError(t, err)
			edit(name, func([]byte) []byte { return content })(t, h, d)
		}
	}
	const (
		newID      = "under a new ID"
		permission = "let the user of this process read and write"
	)
	for name, c := range map[string]struct {
		change func(t *testing.T, h *harness, d *testenv.Disk)
		denied string // the file that the process has no permission to open
		file   string // the name of the file that the error must contain
		remedy string // the remedy that the error must contain; empty if the peer starts
		err    error
	}{
		"log: flipped bit":                        {change: edit("log/"+segment, flip), file: "log/" + segment, remedy: newID, err: api.ErrFault},
		"log: truncated":                          {change: edit("log/"+segment, half), file: "log/" + segment, remedy: newID, err: api.ErrFault},
		"log: empty":                              {change: edit("log/"+segment, empty), file: "log/" + segment, remedy: newID, err: api.ErrFault},
		"log: of another peer":                    {change: ofOther("log/" + segment)},
		"log: missing segment":                    {change: remove("log/" + segment), file: "log", remedy: newID},
		"log: unknown segment":                    {change: write("log/x.seg", nil), file: "log/x.seg", remedy: newID, err: api.ErrFault},
		"log: directory":                          {change: directory("log/" + segment), file: "log/" + segment, remedy: newID},
		"log: not permitted":                      {denied: "log/" + segment, file: "log/" + segment, remedy: permission},
		"log: spare remains":                      {change: write("log/next.tmp", []byte("x"))},
		"log: spare is a directory":               {change: directory("log/next.tmp"), file: "log/next.tmp", remedy: newID},
		"log: other files":                        {change: write("log/x", []byte("x"))},
		"instance: other":                         {change: write("log/instance", []byte("x")), file: "log", remedy: newID, err: api.ErrIdentity},
		"instance: missing":                       {change: remove("log/instance"), file: "log", remedy: newID, err: api.ErrIdentity},
		"instance: directory":                     {change: directory("log/instance"), file: "log/instance", remedy: newID},
		"instance: not permitted":                 {denied: "log/instance", file: "log/instance", remedy: permission},
		"snapshot: flipped bit":                   {change: edit("snap", flip), file: "snap", remedy: newID, err: api.ErrFault},
		"snapshot: truncated":                     {change: edit("snap", half), file: "snap", remedy: newID, err: api.ErrFault},
		"snapshot: empty":                         {change: edit("snap", empty), file: "snap", remedy: newID, err: api.ErrFault},
		"snapshot: version":                       {change: edit("snap", newerSnapshotContent), file: "snap", remedy: "use the program that has written it"},
		"snapshot: another cluster":               {change: installOtherSnapshot, file: "snap", remedy: newID, err: api.ErrInvalid},
		"snapshot: missing":                       {change: remove("snap"), file: "snap", remedy: newID, err: api.ErrIdentity},
		"snapshot: directory":                     {change: directory("snap"), file: "snap", remedy: newID},
		"snapshot: not permitted":                 {denied: "snap", file: "snap", remedy: permission},
		"snapshot: incomplete one":                {change: write("snap.tmp-1", []byte("x"))},
		"snapshot: received one":                  {change: write("snap.received-0000000000000000", []byte("x"))},
		"snapshot: incomplete one is a directory": {change: directory("snap.tmp-1"), file: "snap.tmp-1", remedy: newID},
		"snapshot: received one is a directory":   {change: directory("snap.received-0000000000000000"), file: "snap.received-0", remedy: newID},
		"owner: temporary file is a directory":    {change: directory("peer.json.tmp"), file: "peer.json.tmp", remedy: newID},
		"snapshot: backup is garbage":             {change: write("snap-20000101T000000Z-1.bak", []byte("x"))},
		"owner: flipped bit":                      {change: edit("peer.json", flip), file: "peer.json", remedy: newID, err: api.ErrFault},
		"owner: truncated":                        {change: edit("peer.json", half), file: "peer.json", remedy: newID, err: api.ErrFault},
		"owner: empty":                            {change: edit("peer.json", empty), file: "peer.json", remedy: newID, err: api.ErrFault},
		"owner: of another peer":                  {change: ofOther("peer.json"), file: "peer.json", remedy: "use the directory of", err: api.ErrInvalid},
		"owner: missing":                          {change: remove("peer.json"), file: "peer.json", remedy: newID, err: api.ErrIdentity},
		"owner: directory":                        {change: directory("peer.json"), file: "peer.json", remedy: newID},
		"owner: not permitted":                    {denied: "peer.json", file: "peer.json", remedy: permission},
		"owner: temporary file":                   {change: write("peer.json.tmp", []byte("x"))},
		"peers: flipped bit":                      {change: edit("peers.json", flip), file: "peers.json", remedy: "delete this file", err: api.ErrFault},
		"peers: empty":                            {change: edit("peers.json", empty), file: "peers.json", remedy: "delete this file", err: api.ErrFault},
		"peers: missing":                          {change: remove("peers.json")},
		"peers: directory":                        {change: directory("peers.json"), file: "peers.json", remedy: newID},
		"peers: not permitted":                    {denied: "peers.json", file: "peers.json", remedy: permission},
		"peers: temporary file":                   {change: write("peers.json.tmp", []byte("x"))},
	} {
		t.Run(name, func(t *testing.T) {
			runCluster(t, 3, func(t *testing.T, h *harness) {
				leader := h.waitForLeader(t)
				p := h.otherPeers(leader)[0]
				h.proposeAll(t, p, numberedUpdates("a", 50)...)
				h.compact(t, p)
				h.proposeAll(t, p, "b")
				h.requireUpdates(t, h.peers, append(numberedUpdates("a", 50), "b")...) // wait until all logs end at the same entry
				require.NoError(t, h.stopPeer(p))
				d := h.disks[p.ID]
				first := firstSegment(t, d)
				file, denied := strings.Replace(c.file, segment, first, 1), strings.Replace(c.denied, segment, first, 1)
				if c.change != nil {
					c.change(t, h, d)
				}
				before, err := d.List("log")
				require.NoError(t, err)
				for range 2 {
					_, err = h.openPeer(p, func(cfg *raftlog.Config) { *cfg = cfg.OnDisk(diskWithDeniedFile{d, denied}) })
					h.proposeAll(t, h.otherPeers(p)[0], "x")
					if c.remedy == "" {
						require.NoError(t, err)
						h.requireUpdates(t, h.peers, append(numberedUpdates("a", 50), "b", "x")...)
						return
					}
					require.Error(t, err)
					require.ErrorContains(t, err, file)
					require.ErrorContains(t, err, c.remedy)
					if c.err != nil {
						require.ErrorIs(t, err, c.err)
						require.Equal(t, c.err == api.ErrIdentity, errors.Is(err, api.ErrIdentity))
					}
				}
				after, err := d.List("log")
				require.NoError(t, err)
				require.Equal(t, before, after)
				h.requireUpdates(t, h.otherPeers(p), append(numberedUpdates("a", 50), "b", "x", "x")...)
				if c.denied != "" {
					h.startPeer(p)
					h.requireUpdates(t, h.peers, append(numberedUpdates("a", 50), "b", "x", "x")...)
				}
			})
		})
	}
}

// diskWithDeniedFile is a disk on which opening the file with the given name fails with fs.ErrPermission.
type diskWithDeniedFile struct {
	disk.FS
	name string
}

func (d diskWithDeniedFile) Open(name string) (disk.File, error) {
	if name == d.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return d.FS.Open(name)
}

func (d diskWithDeniedFile) OpenRead(name string) (disk.File, error) {
	if name == d.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return d.FS.OpenRead(name)
}

// firstSegment returns the name of the first segment file of a peer's log.
func firstSegment(t *testing.T, d *testenv.Disk) string {
	t.Helper()
	names, err := d.List("log")
	require.NoError(t, err)
	i := slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, ".seg") })
	require.GreaterOrEqual(t, i, 0)
	return names[i]
}

// newerSnapshotContent returns the content of a snapshot file in a later version of the format.
func newerSnapshotContent([]byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte("raftsnap"), 99)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// installOtherSnapshot replaces the snapshot of a peer by a snapshot of another cluster.
func installOtherSnapshot(t *testing.T, _ *harness, d *testenv.Disk) {
	t.Helper()
	require.NoError(t, d.Remove("snap"))
	w, err := snapshot.Create(d, ".", snapshot.Meta{Cluster: "other", Index: 5, Term: 1, Created: time.Now()})
	require.NoError(t, err)
	require.NoError(t, w.Commit())
}

// TestOpen_RejectsDirectoryOfOtherPeer checks that the directory of another peer, or of a running peer, is rejected.
func TestOpen_RejectsDirectoryOfOtherPeer(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.peers[0]
		d := h.disks[p.ID]
		open := func(id, cluster, addr string) error {
			h.disks[id] = d
			_, err := h.openPeer(api.Peer{ID: id, Addr: addr}, func(c *raftlog.Config) { c.Cluster = cluster })
			return err
		}
		require.ErrorIs(t, open(p.ID, "test", "host7:1"), api.ErrInvalid)
		err := open("p7", "test", "host7:1")
		require.ErrorIs(t, err, api.ErrInUse)
		require.ErrorContains(t, err, "in use")
		h.proposeAll(t, p, "b")
		require.NoError(t, h.stopPeer(p))
		require.ErrorIs(t, open("p7", "test", "host7:1"), api.ErrInvalid)
		require.ErrorIs(t, open(p.ID, "other", p.Addr), api.ErrInvalid)
		_, err = h.openPeer(p, func(c *raftlog.Config) { c.ElectionTimeout, c.Heartbeat = time.Second, 0 })
		require.ErrorIs(t, err, api.ErrInvalid, "the cluster was founded with another election timeout")
		require.ErrorContains(t, err, "election timeout of 1s, but")
		h.startPeer(p)
		h.requireUpdates(t, h.peers, "b")
	})
}
