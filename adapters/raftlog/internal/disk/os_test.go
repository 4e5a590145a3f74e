package disk

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOS_ImplementsFS checks that each method of OS behaves as the comments of FS and File say.
func TestOS_ImplementsFS(t *testing.T) {
	root := t.TempDir()
	d := OS(root)
	require.NoError(t, d.MkdirAll("a/b"))
	require.NoError(t, d.MkdirAll("a/b"))
	_, err := d.Open("a/b/x")
	require.ErrorIs(t, err, fs.ErrNotExist)
	f, err := d.Create("a/b/x")
	require.NoError(t, err)
	_, err = d.Create("a/b/x")
	require.ErrorIs(t, err, fs.ErrExist)

	require.NoError(t, f.Allocate(1<<16))
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 1<<16, size)
	require.NoError(t, f.Allocate(10), "an allocation has shortened the file")
	_, err = f.WriteAt([]byte("hello"), 100)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	b := make([]byte, 6)
	_, err = f.ReadAt(b, 99)
	require.NoError(t, err)
	require.Equal(t, "\x00hello", string(b))
	require.NoError(t, f.Truncate(103))
	n, err := f.ReadAt(b, 100)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "hel", string(b[:n]))
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Sync(), fs.ErrClosed)

	require.NoError(t, d.Link("a/b/x", "a/y"))
	require.ErrorIs(t, d.Link("a/b/x", "a/y"), fs.ErrExist)
	require.NoError(t, d.Rename("a/b/x", "a/y2"))
	names, err := d.List("a")
	require.NoError(t, err)
	require.Equal(t, []string{"b", "y", "y2"}, names)
	require.NoError(t, d.Remove("a/y"))
	require.NoError(t, d.SyncDir("a"))
	require.NoError(t, d.SyncDir("."))
	require.ErrorIs(t, d.SyncDir("none"), fs.ErrNotExist)

	r, err := d.OpenRead("a/y2")
	require.NoError(t, err)
	_, err = r.WriteAt([]byte("x"), 0)
	require.Error(t, err)
	require.NoError(t, r.Close())
	data, err := os.ReadFile(filepath.Join(root, "a", "y2"))
	require.NoError(t, err)
	require.Len(t, data, 103)
}

// TestOS_FilesArePrivate checks that neither the group nor other users can read the files and directories
// that OS creates.
func TestOS_FilesArePrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes do not describe who has access")
	}
	root := filepath.Join(t.TempDir(), "data")
	d := OS(root)
	require.NoError(t, d.MkdirAll("log"))
	f, err := d.Create("log/segment")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	lock, err := d.Lock("lock")
	require.NoError(t, err)
	require.NoError(t, lock.Close())
	for _, name := range []string{".", "log", "log/segment", "lock"} {
		info, err := os.Stat(filepath.Join(root, name))
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, "%s has mode %v", name, info.Mode())
	}
}

func TestOS_RejectsNamesOutsideRoot(t *testing.T) {
	d := OS(t.TempDir())
	for _, name := range []string{"../x", "/x", "a/../../x", ""} {
		_, err := d.Create(name)
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorIs(t, d.MkdirAll(name), fs.ErrInvalid)
		require.ErrorIs(t, d.Rename("x", name), fs.ErrInvalid)
		require.ErrorIs(t, d.Link(name, "x"), fs.ErrInvalid)
		require.ErrorIs(t, d.Remove(name), fs.ErrInvalid)
		require.ErrorIs(t, d.SyncDir(name), fs.ErrInvalid)
		_, err = d.List(name)
		require.ErrorIs(t, err, fs.ErrInvalid)
		_, err = d.Lock(name)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
}

func TestOS_LockIsExclusive(t *testing.T) {
	root := t.TempDir()
	l, err := OS(root).Lock("LOCK")
	require.NoError(t, err)
	_, err = OS(root).Lock("LOCK")
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, l.Close())
	l, err = OS(root).Lock("LOCK")
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

// TestReplaceAndReadSmall_RejectTooLargeFiles checks that Replace does not write a file that is larger
// than ReadSmall can read, and that ReadSmall returns an error for such a file instead of a part of it.
func TestReplaceAndReadSmall_RejectTooLargeFiles(t *testing.T) {
	d := OS(t.TempDir())
	require.NoError(t, Replace(d, "x", []byte("hello")))
	require.ErrorIs(t, Replace(d, "x", make([]byte, maxSmall+1)), ErrTooLarge)
	text, err := ReadSmall(d, "x")
	require.NoError(t, err)
	require.Equal(t, "hello", string(text))

	f, err := d.Open("x")
	require.NoError(t, err)
	require.NoError(t, f.Truncate(maxSmall+1))
	require.NoError(t, f.Close())
	_, err = ReadSmall(d, "x")
	require.ErrorIs(t, err, ErrTooLarge)
}

// TestOS_MkdirAllSyncsParents checks that MkdirAll syncs the parents of the directories that it
// creates, so that their names are durable.
func TestOS_MkdirAllSyncsParents(t *testing.T) {
	root := t.TempDir()
	var synced []string
	var failure error
	at := func(root string) FS {
		synced = nil
		return osFS{root, func(dir string) error {
			synced = append(synced, dir)
			return failure
		}}
	}
	b := filepath.Join(root, "a", "b")
	require.NoError(t, at(b).MkdirAll("."))
	require.ElementsMatch(t, []string{root, filepath.Dir(b)}, synced)
	require.NoError(t, at(b).MkdirAll("."))
	require.Empty(t, synced, "the directory exists already")
	require.NoError(t, at(b).MkdirAll("c/d"))
	require.ElementsMatch(t, []string{b, filepath.Join(b, "c")}, synced)

	t.Chdir(root)
	require.NoError(t, at("e").MkdirAll("."))
	require.Equal(t, []string{"."}, synced)
	failure = io.ErrClosedPipe
	require.ErrorIs(t, at("f").MkdirAll("."), failure)
	require.NoError(t, OS(filepath.Join("g", "h")).MkdirAll("."))
	require.DirExists(t, filepath.Join(root, "g", "h"))
	require.NoError(t, os.WriteFile("file", nil, 0o600))
	require.Error(t, OS(filepath.Join("file", "h")).MkdirAll("."))
}
