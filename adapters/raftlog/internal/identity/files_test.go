package identity_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
)

// TestReadPeers_AcceptsLargeRegistry checks that ReadPeers can read a registry of many more peers than
// usual.
func TestReadPeers_AcceptsLargeRegistry(t *testing.T) {
	fsys := disk.OS(t.TempDir())
	peers := map[string]identity.Known{}
	for i := range 20_000 {
		peers[fmt.Sprint("peer-", i)] = identity.Known{Instance: strings.Repeat("a", 32), Start: 3, Process: strings.Repeat("b", 32)}
	}
	require.NoError(t, identity.WritePeers(fsys, peers))
	again, err := identity.ReadPeers(fsys)
	require.NoError(t, err)
	require.Equal(t, peers, again)
}

// TestReadPeers_DetectsDamagedFile checks that ReadPeers returns either an error or exactly the written
// peers if a bit of the file is flipped or the file is truncated.
func TestReadPeers_DetectsDamagedFile(t *testing.T) {
	dir := t.TempDir()
	fsys, name := disk.OS(dir), filepath.Join(dir, identity.PeersFile)
	peers := map[string]identity.Known{"b": {Instance: "1f", Start: 3, Process: "2e"}, "c": {Instance: "3d"}}
	require.NoError(t, identity.WritePeers(fsys, peers))
	good, err := os.ReadFile(name)
	require.NoError(t, err)
	check := func(content []byte, what string) {
		require.NoError(t, os.WriteFile(name, content, 0o600))
		switch again, err := identity.ReadPeers(fsys); {
		case err == nil:
			require.Equal(t, peers, again, what)
		default:
			require.ErrorIs(t, err, identity.ErrDamaged, what)
		}
	}
	for i := range 8 * len(good) {
		content := slices.Clone(good)
		content[i/8] ^= 1 << (i % 8)
		check(content, fmt.Sprintf("bit %d flipped: %q", i, content))
	}
	for n := range good {
		check(good[:n], fmt.Sprintf("%d bytes", n))
	}
	for _, content := range []string{"{}", "null", `{"b":{"instance":"1f"}}`, `{"peers":null,"sum":0}`} {
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
		_, err := identity.ReadPeers(fsys)
		require.ErrorIs(t, err, identity.ErrDamaged, content)
	}
}

// FuzzFiles reads arbitrary bytes as the file of the owner and as the file of the known peers. Each
// reader must reject the bytes, or return the same value again after the value was written.
func FuzzFiles(f *testing.F) {
	dir := f.TempDir()
	fsys := disk.OS(dir)
	require.NoError(f, identity.Owner{Format: identity.Format, Instance: "1f", Starts: 3}.Write(fsys))
	require.NoError(f, identity.WritePeers(fsys, map[string]identity.Known{"b": {Instance: "1f", Start: 3, Process: "2e"}}))
	for _, name := range []string{identity.OwnerFile, identity.PeersFile} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(f, err)
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		fsys := contentFS{content: content}
		if o, err := identity.ReadOwner(fsys); err == nil {
			text, err := json.Marshal(o)
			require.NoError(t, err)
			again, err := identity.ReadOwner(contentFS{content: text})
			require.NoError(t, err)
			require.Equal(t, o, again)
		}
		_, _ = identity.ReadPeers(fsys)
	})
}

// contentFS is a file system in which all files have the same content.
type contentFS struct {
	disk.FS
	content []byte
}

func (c contentFS) OpenRead(string) (disk.File, error) {
	return contentFile{Reader: bytes.NewReader(c.content)}, nil
}

type contentFile struct {
	disk.File
	*bytes.Reader
}

func (c contentFile) Size() (int64, error)                    { return c.Reader.Size(), nil }
func (c contentFile) ReadAt(b []byte, off int64) (int, error) { return c.Reader.ReadAt(b, off) }
func (contentFile) Close() error                              { return nil }
