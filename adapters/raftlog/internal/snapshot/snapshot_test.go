package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	raftpb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/crashdisk"
)

var created = time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)

const dir = "data"

func newDisk(t testing.TB, seed uint64) *crashdisk.Disk {
	d := crashdisk.New(rand.New(rand.NewPCG(5, seed)))
	require.NoError(t, d.MkdirAll(dir))
	require.NoError(t, d.SyncDir("."))
	return d
}

func metaOf(index uint64) Meta {
	return Meta{
		Cluster: "c", Index: index, Term: 7, Created: created,
		Conf: &raftpb.ConfState{Voters: []uint64{1, 2, index}, Learners: []uint64{9}},
	}
}

// content is what write makes of an index.
func content(index uint64, size int) (tables, data []byte) {
	all := make([]byte, size+size/3)
	rand.NewChaCha8([32]byte{byte(index)}).Read(all)
	return all[:size/3], all[size/3:]
}

func write(fs disk.FS, index uint64, size int) error {
	w, err := Create(fs, dir, metaOf(index))
	if err != nil {
		return err
	}
	defer w.Abort()
	tables, data := content(index, size)
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

// isWhole checks that a snapshot has what write wrote.
func isWhole(t testing.TB, r *Reader, size int) {
	t.Helper()
	m, want := r.Meta(), metaOf(r.Meta().Index)
	require.True(t, proto.Equal(want.Conf, m.Conf))
	m.Conf, want.Conf = nil, nil
	require.Equal(t, want, m)
	wantTables, wantData := content(m.Index, size)
	tables, err := io.ReadAll(r.Tables())
	require.NoError(t, err)
	require.True(t, bytes.Equal(wantTables, tables), "tables")
	data, err := io.ReadAll(r.Data())
	require.NoError(t, err)
	require.True(t, bytes.Equal(wantData, data), "data")
	require.EqualValues(t, size, r.DataSize())
}

// has opens the snapshot, checks it, and returns its index; 0 if there is none.
func has(t testing.TB, d disk.FS, size int) uint64 {
	t.Helper()
	r, err := Open(d, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	require.NoError(t, err)
	defer r.Close()
	isWhole(t, r, size)
	return r.Meta().Index
}

func raw(t testing.TB, r *Reader) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(r.Raw(), 0, r.Size()))
	require.NoError(t, err)
	require.EqualValues(t, len(b), r.Size())
	return b
}

// rawOf is the file that write makes.
func rawOf(t testing.TB, index uint64, size int) []byte {
	t.Helper()
	d := newDisk(t, 0)
	require.NoError(t, write(d, index, size))
	r, err := Open(d, dir)
	require.NoError(t, err)
	defer r.Close()
	return raw(t, r)
}

func put(t testing.TB, d disk.FS, name string, b []byte) {
	t.Helper()
	f, err := d.Create(name)
	require.NoError(t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
	require.NoError(t, d.SyncDir(dir))
}

func list(t testing.TB, d disk.FS) []string {
	t.Helper()
	names, err := d.List(dir)
	require.NoError(t, err)
	return names
}

func TestOnRealFiles(t *testing.T) {
	d := disk.OS(t.TempDir())
	require.NoError(t, d.MkdirAll(dir))
	_, err := Open(d, dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for i, size := range []int{0, 1, maxChunk, 3*maxChunk + 17} {
		require.NoError(t, write(d, uint64(i+1), size))
		require.EqualValues(t, i+1, has(t, d, size))
	}
	r, err := Install(d, dir, bytes.NewReader(rawOf(t, 9, 200)))
	require.NoError(t, err)
	require.NoError(t, write(d, 10, 5))
	isWhole(t, r, 200) // it was replaced
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	put(t, d, "data/from-outside", rawOf(t, 11, 7))
	r, err = InstallFile(d, dir, "data/from-outside")
	require.NoError(t, err)
	isWhole(t, r, 7)
	require.NoError(t, r.Close())
	require.EqualValues(t, 11, has(t, d, 7))
	require.Equal(t, []string{
		"snap", "snap-20260203T040506Z-1.bak", "snap-20260203T040506Z-2.bak", "snap-20260203T040506Z-3.bak",
		"snap-20260203T040506Z-4.bak", "snap-20260203T040506Z-5.bak",
	}, list(t, d)[:6])
	old, err := OpenFile(d, "data/snap-20260203T040506Z-1.bak")
	require.NoError(t, err)
	isWhole(t, old, 0)
	require.NoError(t, old.Close())
}

func TestMetaGoesRound(t *testing.T) {
	for _, m := range []Meta{
		{Index: 1},
		{Index: 1<<64 - 1, Term: 1<<64 - 1, Cluster: strings.Repeat("ø", 5000), Created: created.In(time.FixedZone("x", 3600))},
		{Index: 2, Created: time.Unix(-1<<55, 999_999_999)},
	} {
		d := newDisk(t, 0)
		w, err := Create(d, dir, m)
		require.NoError(t, err)
		require.NoError(t, w.Commit())
		r, err := Open(d, dir)
		require.NoError(t, err)
		got := r.Meta()
		require.True(t, m.Created.Equal(got.Created))
		require.Equal(t, m.Created.IsZero(), got.Created.IsZero())
		require.True(t, proto.Equal(&raftpb.ConfState{}, got.Conf))
		require.Equal(t, []any{m.Cluster, m.Index, m.Term}, []any{got.Cluster, got.Index, got.Term})
		require.NoError(t, r.Close())
	}
	for _, m := range []Meta{{}, {Index: 1, Cluster: strings.Repeat("x", maxMeta)}} {
		d := newDisk(t, 0)
		_, err := Create(d, dir, m)
		require.ErrorIs(t, err, api.ErrInvalid)
		require.Empty(t, list(t, d))
	}
}

func TestTablesComeFirst(t *testing.T) {
	d := newDisk(t, 0)
	w, err := Create(d, dir, metaOf(1))
	require.NoError(t, err)
	_, err = w.Data().Write([]byte("x"))
	require.NoError(t, err)
	_, err = w.Tables().Write([]byte("x"))
	require.ErrorContains(t, err, "tables come first")
	require.Error(t, w.Commit())
	require.Empty(t, list(t, d))
}

func TestAfterTheEnd(t *testing.T) {
	d := newDisk(t, 0)
	w, err := Create(d, dir, metaOf(1))
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	w.Abort()
	require.ErrorIs(t, w.Commit(), fs.ErrClosed)
	_, err = w.Data().Write([]byte("x"))
	require.ErrorIs(t, err, fs.ErrClosed)
	r, err := Open(d, dir)
	require.NoError(t, err)
	data := r.Data()
	require.NoError(t, data.Close())
	_, err = data.Read(make([]byte, 1))
	require.ErrorIs(t, err, fs.ErrClosed)
	require.NoError(t, r.Close())

	w, err = Create(d, dir, metaOf(2))
	require.NoError(t, err)
	w.Abort()
	require.ErrorIs(t, w.Commit(), fs.ErrClosed)
	require.Equal(t, []string{"snap"}, list(t, d))
}

func TestOpenRemovesOnlyItsOwnLeftovers(t *testing.T) {
	d := newDisk(t, 0)
	require.NoError(t, write(d, 1, 10))
	for _, name := range []string{"snap.tmp-1", "snap.tmp-28", "snap.tmp-", "snap.tmp-1x", "snap.tmp", "other.tmp-1", "snap-x-1.bak"} {
		put(t, d, "data/"+name, []byte("x"))
	}
	require.EqualValues(t, 1, has(t, d, 10))
	require.Equal(t, []string{"other.tmp-1", "snap", "snap-x-1.bak", "snap.tmp", "snap.tmp-", "snap.tmp-1x"}, list(t, d))
}

func TestOlderOnesAreRefused(t *testing.T) {
	d := newDisk(t, 0)
	late, err := Create(d, dir, metaOf(3)) // overtaken while it is written
	require.NoError(t, err)
	require.NoError(t, write(d, 5, 10))
	before := list(t, d)[:1]
	require.ErrorIs(t, late.Commit(), ErrOlder)
	_, err = Install(d, dir, bytes.NewReader(rawOf(t, 4, 10)))
	require.ErrorIs(t, err, ErrOlder)
	other := newDisk(t, 1)
	w, err := Create(other, dir, Meta{Cluster: "other", Index: 6})
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	r, err := Open(other, dir)
	require.NoError(t, err)
	_, err = Install(d, dir, bytes.NewReader(raw(t, r)))
	require.ErrorIs(t, err, ErrOtherCluster)
	require.NoError(t, r.Close())
	require.Equal(t, before, list(t, d))
	put(t, d, "data/outside", rawOf(t, 4, 10))
	_, err = InstallFile(d, dir, "data/outside")
	require.ErrorIs(t, err, ErrOlder)
	require.Equal(t, []string{"outside", "snap"}, list(t, d))
	require.EqualValues(t, 5, has(t, d, 10))
	// The same index again is no harm.
	r, err = Install(d, dir, bytes.NewReader(rawOf(t, 5, 10)))
	require.NoError(t, err)
	require.NoError(t, r.Close())
}

// The refusal comes before the data: none have to be sent.
func TestOlderOnesAreRefusedEarly(t *testing.T) {
	d := newDisk(t, 0)
	require.NoError(t, write(d, 5, 10))
	whole := rawOf(t, 4, 300_000)
	r := bytes.NewReader(whole)
	_, err := Install(d, dir, r)
	require.ErrorIs(t, err, ErrOlder)
	require.Greater(t, r.Len(), 300_000)
}

func TestInstallReadsNoMoreThanTheSnapshot(t *testing.T) {
	d := newDisk(t, 0)
	r := io.MultiReader(bytes.NewReader(rawOf(t, 4, 300_000)), strings.NewReader("next"))
	s, err := Install(d, dir, r)
	require.NoError(t, err)
	isWhole(t, s, 300_000)
	require.NoError(t, s.Close())
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "next", string(rest))
}

// Damage is seen wherever it is: by Open, and by Install, which changes nothing then.
func TestDamageIsRefused(t *testing.T) {
	whole := rawOf(t, 6, 30)
	check := func(bad []byte, what string, at int) {
		t.Helper()
		d := newDisk(t, 0)
		put(t, d, "data/snap", bad)
		_, err := Open(d, dir)
		require.ErrorIs(t, err, ErrCorrupt, "%s at %d", what, at)
		d = newDisk(t, 0)
		require.NoError(t, write(d, 5, 10))
		_, err = Install(d, dir, bytes.NewReader(bad))
		require.ErrorIs(t, err, ErrCorrupt, "%s at %d", what, at)
		put(t, d, "data/outside", bad)
		_, err = InstallFile(d, dir, "data/outside")
		require.ErrorIs(t, err, ErrCorrupt, "%s at %d", what, at)
		require.Equal(t, []string{"outside", "snap"}, list(t, d))
		require.EqualValues(t, 5, has(t, d, 10))
	}
	for at := range whole {
		check(whole[:at], "cut", at)
		bad := bytes.Clone(whole)
		bad[at] ^= 1 << (at % 8)
		check(bad, "flip", at)
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[at] ^= 1 << bit
			_, err := scanAll(bad)
			require.ErrorIs(t, err, ErrCorrupt, "byte %d, bit %d", at, bit)
		}
	}
	d := newDisk(t, 0)
	put(t, d, "data/snap", append(bytes.Clone(whole), 0))
	_, err := Open(d, dir)
	require.ErrorIs(t, err, ErrCorrupt, "bytes after the end")
}

func scanAll(b []byte) (layout, error) {
	s := &scanner{r: bytes.NewReader(b)}
	m, err := s.meta()
	if err != nil {
		return layout{}, err
	}
	return s.rest(m)
}

func TestOtherVersions(t *testing.T) {
	b := binary.LittleEndian.AppendUint32([]byte(magic), version+1)
	b = binary.LittleEndian.AppendUint32(b, checksum(0, b))
	d := newDisk(t, 0)
	put(t, d, "data/snap", b)
	_, err := Open(d, dir)
	require.ErrorIs(t, err, ErrVersion)
	require.ErrorIs(t, write(d, 1, 1), ErrVersion) // it may be newer
	require.Equal(t, []string{"snap"}, list(t, d))
}

// What is damaged after it was opened is an error and not the end.
func TestLaterDamage(t *testing.T) {
	d := newDisk(t, 0)
	size := 3 * maxChunk
	require.NoError(t, write(d, 1, size))
	for _, at := range []int64{100, int64(size), int64(size) + int64(size)/3} {
		r, err := Open(d, dir)
		require.NoError(t, err)
		f, err := d.Open("data/snap")
		require.NoError(t, err)
		was := make([]byte, 1)
		_, err = f.ReadAt(was, at)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{was[0] ^ 4}, at)
		require.NoError(t, err)
		_, tables := io.ReadAll(r.Tables())
		_, data := io.ReadAll(r.Data())
		require.ErrorIs(t, errors.Join(tables, data), ErrCorrupt)
		_, err = f.WriteAt(was, at)
		require.NoError(t, err)
		isWhole(t, r, size)
		require.NoError(t, f.Truncate(at))
		_, data = io.ReadAll(r.Data())
		require.ErrorIs(t, data, ErrCorrupt)
		require.NoError(t, f.Close())
		require.NoError(t, r.Close())
		d = newDisk(t, 0)
		require.NoError(t, write(d, 1, size))
	}
}

// A damaged snapshot can be replaced, and is kept nevertheless.
func TestADamagedOneIsReplaced(t *testing.T) {
	d := newDisk(t, 0)
	put(t, d, "data/snap", []byte("damaged"))
	r, err := Install(d, dir, bytes.NewReader(rawOf(t, 3, 10)))
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.EqualValues(t, 3, has(t, d, 10))
	require.Equal(t, []string{"snap", "snap-20260203T040506Z-1.bak"}, list(t, d))
}
