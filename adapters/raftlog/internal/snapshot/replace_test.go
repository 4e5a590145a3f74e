package snapshot

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

const (
	contentSize = 66_000 // large enough for more than one chunk
	oldIndex    = 5
	newIndex    = 6
)

// replacements are the ways to replace the current snapshot by the snapshot file with the given
// content.
var replacements = map[string]func(t *testing.T, d *testenv.Disk, file []byte) error{
	"commit": func(_ *testing.T, d *testenv.Disk, _ []byte) error { return writeSnapshot(d, newIndex, contentSize) },
	"install": func(_ *testing.T, d *testenv.Disk, file []byte) error {
		r, err := Install(d, testDir, bytes.NewReader(file))
		if err == nil {
			err = r.Close()
		}
		return err
	},
	"installFile": func(_ *testing.T, d *testenv.Disk, file []byte) error {
		// Do not sync the file: InstallFile must make a file durable that another program has not synced.
		f, err := d.Create("data/outside")
		if err != nil {
			return err
		}
		if _, err := f.WriteAt(file, 0); err != nil {
			return err
		}
		r, err := InstallFile(d, testDir, "data/outside")
		if err == nil {
			err = r.Close()
		}
		return err
	},
}

// requireOldInBackup requires that one of the backups contains the old snapshot.
func requireOldInBackup(t *testing.T, d *testenv.Disk) {
	t.Helper()
	for _, name := range listNames(t, d) {
		if !strings.HasSuffix(name, ".bak") {
			continue
		}
		r, err := OpenFile(d, path.Join(testDir, name))
		require.NoError(t, err)
		requireComplete(t, r, contentSize)
		index := r.Meta().Index
		require.NoError(t, r.Close())
		if index == oldIndex {
			return
		}
	}
	require.Fail(t, "no backup contains the old snapshot")
}

// requireOldOrNew requires that, after a failure, either the old or the new snapshot is the newest one,
// and returns its index.
func requireOldOrNew(t *testing.T, d *testenv.Disk, hadOld bool) uint64 {
	t.Helper()
	index := requireIndex(t, d, contentSize)
	switch index {
	case newIndex:
		if hadOld {
			requireOldInBackup(t, d)
		}
	case oldIndex:
		require.True(t, hadOld)
	default:
		require.False(t, hadOld, "the snapshot is lost")
	}
	for _, name := range listNames(t, d) {
		require.False(t, isTemp(name), "%s was not removed", name)
	}
	return index
}

// failEveryOperation executes each of the replacements repeatedly. Each time, it makes another
// operation of the disk fail, by the function arm, and calls check with the error of the replacement.
func failEveryOperation(t *testing.T, arm func(*testenv.Disk, int), check func(t *testing.T, d *testenv.Disk, hadOld bool, err error)) {
	file := encodedSnapshot(t, newIndex, contentSize)
	for name, replacement := range replacements {
		for _, hadOld := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/old=%v", name, hadOld), func(t *testing.T) {
				for n := 1; ; n++ {
					require.Less(t, n, 100)
					d := newDisk(t, uint64(n))
					if hadOld {
						require.NoError(t, writeSnapshot(d, oldIndex, contentSize))
					}
					before := d.Ops()
					arm(d, before+n)
					err := replacement(t, d, file)
					last := d.Ops() < before+n // the replacement has fewer than n operations
					if last {
						require.NoError(t, err)
					} else {
						require.Error(t, err)
					}
					check(t, d, hadOld, err)
					if last {
						break
					}
				}
			})
		}
	}
}

func TestReplace_KeepsOldOrNewSnapshotAfterCrash(t *testing.T) {
	failEveryOperation(t, (*testenv.Disk).CrashAt, func(t *testing.T, d *testenv.Disk, hadOld bool, err error) {
		for outcome := range 10 {
			found := d.Crash()
			index := requireOldOrNew(t, found, hadOld)
			if err == nil {
				require.EqualValues(t, newIndex, index, "a crash has undone a replacement that was reported as durable")
			}
			if outcome%5 > 0 {
				continue
			}
			// The next snapshot can replace the snapshot that was found after the crash.
			require.NoError(t, writeSnapshot(found, newIndex+1, contentSize))
			require.EqualValues(t, newIndex+1, requireIndex(t, found, contentSize))
			if hadOld {
				requireOldInBackup(t, found)
			}
		}
	})
}

func TestReplace_KeepsOldOrNewSnapshotAfterDiskError(t *testing.T) {
	failEveryOperation(t, (*testenv.Disk).FailAt, func(t *testing.T, d *testenv.Disk, hadOld bool, err error) {
		if err != nil {
			require.ErrorIs(t, err, testenv.ErrIO)
		}
		requireOldOrNew(t, d, hadOld)
		for range 4 {
			requireOldOrNew(t, d.Crash(), hadOld)
		}
	})
}

func TestReplace_RejectsOlderAndForeignSnapshots(t *testing.T) {
	d := newDisk(t, 0)
	late, err := Create(d, testDir, metaOf(3))
	require.NoError(t, err)
	require.NoError(t, writeSnapshot(d, 5, 10))
	before := listNames(t, d)[:1]
	require.ErrorIs(t, late.Commit(), ErrOlder)
	_, err = Install(d, testDir, bytes.NewReader(encodedSnapshot(t, 4, 10)))
	require.ErrorIs(t, err, ErrOlder)
	other := newDisk(t, 1)
	w, err := Create(other, testDir, Meta{Cluster: "other", Index: 6})
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	r, err := Open(other, testDir)
	require.NoError(t, err)
	_, err = Install(d, testDir, bytes.NewReader(readRaw(t, r)))
	require.ErrorIs(t, err, ErrOtherCluster)
	require.NoError(t, r.Close())
	require.Equal(t, before, listNames(t, d))
	createFile(t, d, "data/outside", encodedSnapshot(t, 4, 10))
	_, err = InstallFile(d, testDir, "data/outside")
	require.ErrorIs(t, err, ErrOlder)
	require.Equal(t, []string{"outside", "snap"}, listNames(t, d))
	require.EqualValues(t, 5, requireIndex(t, d, 10))
	// A snapshot may replace a snapshot with the same index.
	r, err = Install(d, testDir, bytes.NewReader(encodedSnapshot(t, 5, 10)))
	require.NoError(t, err)
	require.NoError(t, r.Close())
}

// TestInstall_RejectsOlderSnapshotBeforeReadingData checks that Install rejects an older snapshot by
// its metadata, and does not read its data.
func TestInstall_RejectsOlderSnapshotBeforeReadingData(t *testing.T) {
	d := newDisk(t, 0)
	require.NoError(t, writeSnapshot(d, 5, 10))
	whole := encodedSnapshot(t, 4, 300_000)
	r := bytes.NewReader(whole)
	_, err := Install(d, testDir, r)
	require.ErrorIs(t, err, ErrOlder)
	require.Greater(t, r.Len(), 300_000)
}

func TestInstall_DoesNotReadBeyondTheSnapshot(t *testing.T) {
	d := newDisk(t, 0)
	r := io.MultiReader(bytes.NewReader(encodedSnapshot(t, 4, 300_000)), strings.NewReader("next"))
	s, err := Install(d, testDir, r)
	require.NoError(t, err)
	requireComplete(t, s, 300_000)
	require.NoError(t, s.Close())
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "next", string(rest))
}

// TestInstall_ReplacesDamagedSnapshot checks that Install replaces a damaged snapshot, and keeps the
// damaged file as a backup.
func TestInstall_ReplacesDamagedSnapshot(t *testing.T) {
	d := newDisk(t, 0)
	createFile(t, d, "data/snap", []byte("damaged"))
	r, err := Install(d, testDir, bytes.NewReader(encodedSnapshot(t, 3, 10)))
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.EqualValues(t, 3, requireIndex(t, d, 10))
	require.Equal(t, []string{"snap", "snap-20260203T040506Z-1.bak"}, listNames(t, d))
}
