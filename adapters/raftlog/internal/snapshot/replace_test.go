package snapshot

import (
	"bytes"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/crashdisk"
)

const (
	crashSize = 66_000 // two chunks
	oldIndex  = 5
	newIndex  = 6
)

// replacements are the ways in which a new snapshot comes about.
var replacements = map[string]func(t *testing.T, d *crashdisk.Disk, file []byte) error{
	"commit": func(_ *testing.T, d *crashdisk.Disk, _ []byte) error { return write(d, newIndex, crashSize) },
	"install": func(_ *testing.T, d *crashdisk.Disk, file []byte) error {
		r, err := Install(d, dir, bytes.NewReader(file))
		if err == nil {
			err = r.Close()
		}
		return err
	},
	"installFile": func(_ *testing.T, d *crashdisk.Disk, file []byte) error {
		// The outside program knows nothing of syncs.
		f, err := d.Create("data/outside")
		if err != nil {
			return err
		}
		if _, err := f.WriteAt(file, 0); err != nil {
			return err
		}
		r, err := InstallFile(d, dir, "data/outside")
		if err == nil {
			err = r.Close()
		}
		return err
	},
}

// oldIsKept checks that the old snapshot is whole in a backup.
func oldIsKept(t *testing.T, d *crashdisk.Disk) {
	t.Helper()
	for _, name := range list(t, d) {
		if !strings.HasSuffix(name, ".bak") {
			continue
		}
		r, err := OpenFile(d, path.Join(dir, name))
		require.NoError(t, err)
		isWhole(t, r, crashSize)
		index := r.Meta().Index
		require.NoError(t, r.Close())
		if index == oldIndex {
			return
		}
	}
	require.Fail(t, "the old snapshot is lost")
}

// isOldOrNew checks what is found after a failure. It returns the snapshot's index.
func isOldOrNew(t *testing.T, d *crashdisk.Disk, hadOld bool) uint64 {
	t.Helper()
	index := has(t, d, crashSize)
	switch index {
	case newIndex:
		if hadOld {
			oldIsKept(t, d)
		}
	case oldIndex:
		require.True(t, hadOld)
	default:
		require.False(t, hadOld, "there is no snapshot")
	}
	for _, name := range list(t, d) {
		require.False(t, isTemp(name), "%s is left", name)
	}
	return index
}

// forEveryOperation replaces the old snapshot again and again; arm is told the number of the
// operation that fails, and check is called with what the replacement has returned.
func forEveryOperation(t *testing.T, arm func(*crashdisk.Disk, int), check func(t *testing.T, d *crashdisk.Disk, hadOld bool, err error)) {
	file := rawOf(t, newIndex, crashSize)
	for name, replacement := range replacements {
		for _, hadOld := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/old=%v", name, hadOld), func(t *testing.T) {
				for n := 1; ; n++ {
					require.Less(t, n, 100)
					d := newDisk(t, uint64(n))
					if hadOld {
						require.NoError(t, write(d, oldIndex, crashSize))
					}
					begin := d.Ops()
					arm(d, begin+n)
					err := replacement(t, d, file)
					last := d.Ops() < begin+n // it was over before
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

func TestCrashes(t *testing.T) {
	forEveryOperation(t, (*crashdisk.Disk).CrashAt, func(t *testing.T, d *crashdisk.Disk, hadOld bool, err error) {
		for outcome := range 10 {
			found := d.Crash()
			index := isOldOrNew(t, found, hadOld)
			if err == nil {
				require.EqualValues(t, newIndex, index, "what was reported done is undone")
			}
			if outcome%5 > 0 {
				continue
			}
			// And it goes on from there.
			require.NoError(t, write(found, newIndex+1, crashSize))
			require.EqualValues(t, newIndex+1, has(t, found, crashSize))
			if hadOld {
				oldIsKept(t, found)
			}
		}
	})
}

func TestFailingOperations(t *testing.T) {
	forEveryOperation(t, (*crashdisk.Disk).FailAt, func(t *testing.T, d *crashdisk.Disk, hadOld bool, err error) {
		if err != nil {
			require.ErrorIs(t, err, crashdisk.ErrIO)
		}
		isOldOrNew(t, d, hadOld)
		for range 4 {
			isOldOrNew(t, d.Crash(), hadOld)
		}
	})
}
