package testenv

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func createFile(t *testing.T, d *Disk, name string) disk.File {
	t.Helper()
	f, err := d.Create(name)
	require.NoError(t, err)
	return f
}

func readFile(t *testing.T, d *Disk, name string) []byte {
	t.Helper()
	f, err := d.OpenRead(name)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	require.NoError(t, err)
	return b
}

func TestDisk_ImplementsFileSystem(t *testing.T) {
	d := NewDisk(1)
	require.NoError(t, d.MkdirAll("a/b"))
	f := createFile(t, d, "a/b/x")
	_, err := d.Create("a/b/x")
	require.ErrorIs(t, err, fs.ErrExist)
	_, err = d.Create("none/x")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = f.WriteAt([]byte("hello"), 5000)
	require.NoError(t, err)
	require.NoError(t, f.Allocate(10_000))
	require.NoError(t, f.Allocate(10))
	require.NoError(t, f.Truncate(5003))
	require.NoError(t, f.Truncate(5006))
	require.Equal(t, append(make([]byte, 5000), "hel\x00\x00\x00"...), readFile(t, d, "a/b/x"))
	n, err := f.ReadAt(make([]byte, 10), 5000)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 6, n)
	require.NoError(t, d.Link("a/b/x", "a/y"))
	require.ErrorIs(t, d.Link("a/b/x", "a/y"), fs.ErrExist)
	require.NoError(t, d.Rename("a/b/x", "a/z"))
	require.NoError(t, d.Rename("a/y", "a/z"))
	names, err := d.List("a")
	require.NoError(t, err)
	require.Equal(t, []string{"b", "z"}, names)
	require.NoError(t, d.Remove("a/z"))
	_, err = d.Open("a/z")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Close(), fs.ErrClosed)

	l, err := d.Lock("a/L")
	require.NoError(t, err)
	_, err = d.Lock("a/L")
	require.ErrorIs(t, err, disk.ErrLocked)
	require.NoError(t, l.Close())
	_, err = d.Lock("a/L")
	require.NoError(t, err)
}

// TestCrash_UnsyncedWritesMayBeLost checks that synced data survives every crash, and that unsynced
// data is lost in some crashes, kept in some, and torn in others.
func TestCrash_UnsyncedWritesMayBeLost(t *testing.T) {
	old, fresh := bytes.Repeat([]byte("o"), 2048), bytes.Repeat([]byte("n"), 2048)
	lost, kept, torn, sizes := 0, 0, 0, map[int]int{}
	for seed := range uint64(300) {
		d := NewDisk(seed)
		f := createFile(t, d, "x")
		_, err := f.WriteAt(old, 0)
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		require.NoError(t, d.SyncDir("."))
		_, err = f.WriteAt(fresh, 0)
		require.NoError(t, err)
		_, err = f.WriteAt(fresh, 4096)
		require.NoError(t, err)
		got := readFile(t, d.Crash(), "x")
		sizes[len(got)]++
		switch head := got[:2048]; {
		case bytes.Equal(head, old):
			lost++
		case bytes.Equal(head, fresh):
			kept++
		default:
			torn++
			for s := range slices.Chunk(head, sector) {
				require.True(t, bytes.Equal(s, old[:sector]) || bytes.Equal(s, fresh[:sector]))
			}
		}
	}
	require.Positive(t, lost)
	require.Positive(t, kept)
	require.Positive(t, torn)
	require.Positive(t, sizes[2048])
	require.Positive(t, sizes[6144])
}

func TestCrash_UnsyncedDirectoryChangesMayBeLost(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(300) {
		d := NewDisk(seed)
		require.NoError(t, d.MkdirAll("a"))
		require.NoError(t, d.SyncDir("."))
		f := createFile(t, d, "a/synced")
		_, err := f.WriteAt([]byte("synced"), 0)
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		require.NoError(t, d.SyncDir("a"))
		createFile(t, d, "a/new")
		require.NoError(t, d.Rename("a/synced", "a/renamed"))
		found := d.Crash()
		names, err := found.List("a")
		require.NoError(t, err)
		outcomes[fmt.Sprint(names)]++
		// After a crash, the renamed file has exactly one of its two names.
		name := "a/synced"
		if slices.Contains(names, "renamed") {
			name = "a/renamed"
		}
		require.Equal(t, "synced", string(readFile(t, found, name)))
	}
	require.Len(t, outcomes, 4, "%v", outcomes)
}

func TestCrash_IsReproducible(t *testing.T) {
	crash := func() []byte {
		d := NewDisk(5)
		f := createFile(t, d, "x")
		require.NoError(t, d.SyncDir("."))
		for i := range int64(50) {
			_, err := f.WriteAt(bytes.Repeat([]byte{byte(i)}, 700), 300*i)
			require.NoError(t, err)
		}
		return readFile(t, d.Crash(), "x")
	}
	require.Equal(t, crash(), crash())
}

func TestCrashAt_AllLaterOperationsFail(t *testing.T) {
	d := NewDisk(1)
	f := createFile(t, d, "x")
	d.CrashAt(d.Ops() + 2)
	_, err := f.WriteAt([]byte("a"), 0)
	require.NoError(t, err)
	require.ErrorIs(t, f.Sync(), ErrCrashed)
	_, err = f.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, ErrCrashed)
	require.ErrorIs(t, d.Rename("x", "y"), ErrCrashed)
	_, err = d.List(".")
	require.ErrorIs(t, err, ErrCrashed)
	_, err = d.Lock("l")
	require.ErrorIs(t, err, ErrCrashed)
	_, err = d.Crash().List(".")
	require.NoError(t, err)
}

func TestFailAt_FailedSyncLosesData(t *testing.T) {
	d := NewDisk(1)
	f := createFile(t, d, "x")
	_, err := f.WriteAt([]byte("a"), 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir("."))
	_, err = f.WriteAt([]byte("b"), 0)
	require.NoError(t, err)
	d.FailAt(d.Ops() + 1)
	require.ErrorIs(t, f.Sync(), ErrIO)
	require.Equal(t, "b", string(readFile(t, d, "x")))
	require.ErrorIs(t, f.Sync(), ErrIO, "a later Sync has succeeded")
	_, err = f.WriteAt([]byte("c"), 0)
	require.NoError(t, err)
	require.ErrorIs(t, f.Sync(), ErrIO)
	for range 20 {
		require.Equal(t, "a", string(readFile(t, d.Crash(), "x")))
	}
}

func TestFailAt_MakesOnlyOneOperationFail(t *testing.T) {
	d := NewDisk(1)
	f := createFile(t, d, "x")
	d.FailWith(d.Ops()+1, syscall.ENOSPC)
	require.ErrorIs(t, f.Allocate(100), syscall.ENOSPC)
	require.NoError(t, f.Allocate(100))
	d.FailAt(d.Ops() + 1)
	require.ErrorIs(t, d.Rename("x", "y"), ErrIO)
	d.FailReadAt(d.Reads() + 1)
	_, err := d.Open("x")
	require.ErrorIs(t, err, ErrIO)
	d.SetSpace(150)
	_, err = f.WriteAt(make([]byte, 100), 100)
	require.ErrorIs(t, err, syscall.ENOSPC)
	_, err = f.WriteAt(make([]byte, 50), 100)
	require.NoError(t, err)
	r, err := d.OpenRead("x")
	require.NoError(t, err)
	_, err = r.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, syscall.EBADF)
}
