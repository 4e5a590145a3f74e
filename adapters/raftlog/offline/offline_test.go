package offline_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/offline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testTime = time.Unix(1_700_000_000, 0)

func newUpdate(index, term uint64, data string) *raftpb.Entry {
	id := api.RequestIDFrom(testTime, index, term)
	h := replica.Header{Kind: api.KindState, ID: id, Time: testTime, Sum: replica.Sum([]byte(data))}
	return &raftpb.Entry{Index: &index, Term: &term, Data: replica.EncodeEntry(h, []byte(data))}
}

func commitState(index uint64) *raftpb.HardState {
	term, vote := uint64(1), uint64(1)
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &index}
}

// newLog returns a directory, and its log with updates 1 to 40 in several segments. Updates 31 to 40 have
// replaced updates of an earlier term, and 36 to 40 are not committed.
func newLog(t testing.TB) (string, *filelog.Log) {
	dir := t.TempDir()
	l, err := filelog.Open(disk.OS(dir), offline.LogDir, filelog.Options{SegmentSize: 4096})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	appendUpdates := func(from, to, term, committed uint64) {
		for i := from; i <= to; i++ {
			require.NoError(t, l.Append(filelog.Batch{
				Entries: []*raftpb.Entry{newUpdate(i, term, fmt.Sprintf("%d %s", i, strings.Repeat("x", 400)))}, Sync: i == to,
				HardState: commitState(min(committed, i)),
			}))
		}
	}
	appendUpdates(1, 35, 1, 30)
	appendUpdates(31, 40, 2, 35)
	return dir, l
}

// TestEntries_ReturnsEveryEntry checks that Entries misses, repeats and changes no entry, and reports which
// entries are committed.
func TestEntries_ReturnsEveryEntry(t *testing.T) {
	dir, _ := newLog(t)
	next := uint64(1)
	require.NoError(t, offline.Entries(dir, func(e offline.Entry) error {
		require.Equal(t, next, e.Index)
		require.Equal(t, next <= 35, e.Committed)
		require.Equal(t, next > 30, e.Term == 2)
		require.Equal(t, api.KindState, e.Kind)
		require.Equal(t, api.RequestIDFrom(testTime, e.Index, e.Term), e.ID)
		require.Equal(t, testTime, e.Time)
		require.True(t, strings.HasPrefix(string(e.Data), fmt.Sprint(next)))
		require.FileExists(t, filepath.Join(dir, offline.LogDir, e.File))
		next++
		return nil
	}))
	require.Equal(t, uint64(41), next)
	require.ErrorIs(t, offline.Entries(t.TempDir(), nil), os.ErrNotExist)
}

// TestReadLog_MatchesFilelog checks that the description of a log agrees with package filelog, before and after
// files are pruned.
func TestReadLog_MatchesFilelog(t *testing.T) {
	dir, log := newLog(t)
	l, err := offline.ReadLog(dir)
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 40, 35, 0}, []uint64{l.First, l.Last, l.Commit, l.Compacted})
	segments := log.Segments()
	require.Len(t, l.Segments, len(segments))
	require.Greater(t, len(segments), 4)
	count, replaced := 0, 0
	for i, s := range l.Segments {
		require.Equal(t, filepath.Base(segments[i].Name), s.Name)
		require.Equal(t, segments[i].Sealed, s.Sealed)
		require.Equal(t, segments[i].Size, s.Used)
		count += s.Entries
		replaced += s.Replaced
	}
	require.Equal(t, 40, count)
	require.Equal(t, 5, replaced)

	require.NoError(t, log.Compact(33))
	l, err = offline.ReadLog(dir)
	require.NoError(t, err)
	require.Equal(t, uint64(33), l.Compacted)
	for through := range uint64(34) {
		require.Equal(t, log.Prunable(through), l.Prunable(through), through)
	}
	require.NotEmpty(t, l.Prunable(33))
	last := l.Segments[len(l.Segments)-1]
	for _, name := range l.Prunable(40) {
		require.NotEqual(t, last.Name, filepath.Base(name), "the peer writes to the last file")
	}
	for _, name := range l.Prunable(33) {
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
	}
	l, err = offline.ReadLog(dir)
	require.NoError(t, err)
	require.Greater(t, l.First, uint64(1))
	require.LessOrEqual(t, l.First, uint64(34))
	_, err = json.Marshal(l)
	require.NoError(t, err)
}

// TestReadLog_ReportsDamage checks that damage in any file of a log, or of a snapshot, is reported as
// ErrCorrupt or ErrSnapshot.
func TestReadLog_ReportsDamage(t *testing.T) {
	dir, log := newLog(t)
	first := filepath.Join(dir, log.Segments()[0].Name)
	text, err := os.ReadFile(first)
	require.NoError(t, err)
	text[1000] ^= 1
	require.NoError(t, os.WriteFile(first, text, 0o600))
	_, err = offline.ReadLog(dir)
	require.ErrorIs(t, err, offline.ErrCorrupt)
	require.ErrorIs(t, offline.Entries(dir, func(offline.Entry) error { return nil }), offline.ErrCorrupt)

	// Damage in the last file is also detected if a valid record follows it.
	dir = t.TempDir()
	log, err = filelog.Open(disk.OS(dir), offline.LogDir, filelog.Options{SegmentSize: 1 << 16})
	require.NoError(t, err)
	for i := range uint64(4) {
		require.NoError(t, log.Append(filelog.Batch{Entries: []*raftpb.Entry{newUpdate(i+1, 1, strings.Repeat("x", 400))}, HardState: commitState(i), Sync: true}))
	}
	only := filepath.Join(dir, log.Segments()[0].Name)
	require.NoError(t, log.Close())
	text, err = os.ReadFile(only)
	require.NoError(t, err)
	text[1200] ^= 1
	require.NoError(t, os.WriteFile(only, text, 0o600))
	visited := 0
	require.ErrorIs(t, offline.Entries(dir, func(offline.Entry) error { visited++; return nil }), offline.ErrCorrupt)
	require.Equal(t, 2, visited, "entries before the damage")
	_, err = offline.ReadLog(dir)
	require.ErrorIs(t, err, offline.ErrCorrupt)

	file := filepath.Join(dir, "snap")
	require.NoError(t, os.WriteFile(file, []byte("no snapshot"), 0o600))
	_, err = offline.ReadSnapshot(file)
	require.ErrorIs(t, err, offline.ErrSnapshot)
}

// TestDirectory_DamagedFilesDoNotPanic checks that the functions of the package do not panic if files contain
// random damage, and do not report sizes greater than the files. The parsers themselves have fuzz targets:
// filelog.FuzzOpen, snapshot.FuzzOpen and identity.FuzzFiles.
func TestDirectory_DamagedFilesDoNotPanic(t *testing.T) {
	dir, _ := newLog(t)
	segments, err := filepath.Glob(filepath.Join(dir, offline.LogDir, "*"))
	require.NoError(t, err)
	contents := [][]byte{[]byte(`{"format":3,"cluster":"c","peer":"a","instance":"1f"}`)}
	for _, name := range segments[:2] {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		contents = append(contents, content)
	}
	random := rand.New(rand.NewPCG(1, 1))
	damaged := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(damaged, offline.LogDir), 0o700))
	for i := range 300 {
		content := slices.Clone(contents[i%len(contents)])
		for range i / len(contents) % 4 { // change 0 to 3 bits
			content[random.IntN(len(content))] ^= byte(1 << random.IntN(8))
		}
		for _, name := range []string{"peer.json", offline.SnapshotName, filepath.Join(offline.LogDir, filepath.Base(segments[0]))} {
			require.NoError(t, os.WriteFile(filepath.Join(damaged, name), content, 0o600))
		}
		_, _ = offline.ReadOwner(damaged)
		_, _ = offline.ReadSnapshot(filepath.Join(damaged, offline.SnapshotName))
		read := 0
		_ = offline.Entries(damaged, func(e offline.Entry) error {
			read += e.Size
			return nil
		})
		require.LessOrEqual(t, read, len(content))
		if log, err := offline.ReadLog(damaged); err == nil {
			for _, s := range log.Segments {
				require.LessOrEqual(t, s.Used, int64(len(content)))
			}
		}
	}
}
