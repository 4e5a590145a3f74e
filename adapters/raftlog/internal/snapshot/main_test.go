package snapshot

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	raftpb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var created = time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)

const testDir = "data"

func newDisk(t testing.TB, seed uint64) *testenv.Disk {
	d := testenv.NewDisk(seed)
	require.NoError(t, d.MkdirAll(testDir))
	require.NoError(t, d.SyncDir("."))
	return d
}

func metaOf(index uint64) Meta {
	return Meta{
		Cluster: "c", Index: index, Term: 7, Created: created,
		Conf: &raftpb.ConfState{Voters: []uint64{1, 2, index}, Learners: []uint64{9}},
	}
}

// contentOf returns the tables and the data that writeSnapshot writes into the snapshot of an index.
func contentOf(index uint64, size int) (tables, data []byte) {
	all := make([]byte, size+size/3)
	rand.NewChaCha8([32]byte{byte(index)}).Read(all)
	return all[:size/3], all[size/3:]
}

// writeSnapshot writes and commits a snapshot of the given index, whose data has size bytes.
func writeSnapshot(fs disk.FS, index uint64, size int) error {
	w, err := Create(fs, testDir, metaOf(index))
	if err != nil {
		return err
	}
	defer w.Abort()
	tables, data := contentOf(index, size)
	if _, err := w.Tables().Write(tables); err != nil {
		return err
	}
	for len(data) > 0 {
		n := min(len(data), 1000)
		if _, err := w.Data().Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return w.Commit()
}

// requireComplete requires that a snapshot contains what writeSnapshot has written.
func requireComplete(t testing.TB, r *Reader, size int) {
	t.Helper()
	m, want := r.Meta(), metaOf(r.Meta().Index)
	require.True(t, proto.Equal(want.Conf, m.Conf))
	m.Conf, want.Conf = nil, nil
	require.Equal(t, want, m)
	wantTables, wantData := contentOf(m.Index, size)
	tables, err := io.ReadAll(r.Tables())
	require.NoError(t, err)
	require.True(t, bytes.Equal(wantTables, tables), "tables")
	data, err := io.ReadAll(r.Data())
	require.NoError(t, err)
	require.True(t, bytes.Equal(wantData, data), "data")
	require.EqualValues(t, size, r.DataSize())
}

// requireIndex opens the newest snapshot and checks its content. It returns the snapshot's index, or 0
// if there is no snapshot.
func requireIndex(t testing.TB, d disk.FS, size int) uint64 {
	t.Helper()
	r, err := Open(d, testDir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	require.NoError(t, err)
	defer r.Close()
	requireComplete(t, r, size)
	return r.Meta().Index
}

// readRaw returns the content of the whole snapshot file.
func readRaw(t testing.TB, r *Reader) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(r.Raw(), 0, r.Size()))
	require.NoError(t, err)
	require.EqualValues(t, len(b), r.Size())
	return b
}

// encodedSnapshot returns the content of the file that writeSnapshot writes.
func encodedSnapshot(t testing.TB, index uint64, size int) []byte {
	t.Helper()
	d := newDisk(t, 0)
	require.NoError(t, writeSnapshot(d, index, size))
	r, err := Open(d, testDir)
	require.NoError(t, err)
	defer r.Close()
	return readRaw(t, r)
}

// createFile creates a durable file with the content b.
func createFile(t testing.TB, d disk.FS, name string, b []byte) {
	t.Helper()
	f, err := d.Create(name)
	require.NoError(t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
	require.NoError(t, d.SyncDir(testDir))
}

func listNames(t testing.TB, d disk.FS) []string {
	t.Helper()
	names, err := d.List(testDir)
	require.NoError(t, err)
	return names
}
