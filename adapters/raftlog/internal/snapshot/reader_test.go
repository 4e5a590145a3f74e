package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpen_RemovesOnlyTemporaryFiles(t *testing.T) {
	d := newDisk(t, 0)
	require.NoError(t, writeSnapshot(d, 1, 10))
	for _, name := range []string{"snap.tmp-1", "snap.tmp-28", "snap.tmp-", "snap.tmp-1x", "snap.tmp", "other.tmp-1", "snap-x-1.bak"} {
		createFile(t, d, "data/"+name, []byte("x"))
	}
	require.EqualValues(t, 1, requireIndex(t, d, 10))
	require.Equal(t, []string{"other.tmp-1", "snap", "snap-x-1.bak", "snap.tmp", "snap.tmp-", "snap.tmp-1x"}, listNames(t, d))
}

func TestOpen_RejectsUnknownVersion(t *testing.T) {
	b := binary.LittleEndian.AppendUint32([]byte(magic), version+1)
	b = binary.LittleEndian.AppendUint32(b, updateCRC(0, b))
	d := newDisk(t, 0)
	createFile(t, d, "data/snap", b)
	_, err := Open(d, testDir)
	require.ErrorIs(t, err, ErrVersion)
	require.ErrorIs(t, writeSnapshot(d, 1, 1), ErrVersion, "the current snapshot may be newer")
	require.Equal(t, []string{"snap"}, listNames(t, d))
}

// TestReader_DetectsDamageAfterOpen checks that reading a file that was damaged after Open returns
// ErrCorrupt, and not io.EOF.
func TestReader_DetectsDamageAfterOpen(t *testing.T) {
	d := newDisk(t, 0)
	size := 3 * maxChunk
	require.NoError(t, writeSnapshot(d, 1, size))
	for _, at := range []int64{100, int64(size), int64(size) + int64(size)/3} {
		r, err := Open(d, testDir)
		require.NoError(t, err)
		f, err := d.Open("data/snap")
		require.NoError(t, err)
		original := make([]byte, 1)
		_, err = f.ReadAt(original, at)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{original[0] ^ 4}, at)
		require.NoError(t, err)
		_, tables := io.ReadAll(r.Tables())
		_, data := io.ReadAll(r.Data())
		require.ErrorIs(t, errors.Join(tables, data), ErrCorrupt)
		_, err = f.WriteAt(original, at)
		require.NoError(t, err)
		requireComplete(t, r, size)
		require.NoError(t, f.Truncate(at))
		_, data = io.ReadAll(r.Data())
		require.ErrorIs(t, data, ErrCorrupt)
		require.NoError(t, f.Close())
		require.NoError(t, r.Close())
		d = newDisk(t, 0)
		require.NoError(t, writeSnapshot(d, 1, size))
	}
}

// TestOpenAndInstall_DetectEveryDamage checks that Open, Install and InstallFile detect each flipped bit and each
// truncation of a snapshot, and change nothing then.
func TestOpenAndInstall_DetectEveryDamage(t *testing.T) {
	whole := encodedSnapshot(t, 6, 30)
	check := func(bad []byte, name string, at int) {
		t.Helper()
		d := newDisk(t, 0)
		createFile(t, d, "data/snap", bad)
		_, err := Open(d, testDir)
		require.ErrorIs(t, err, ErrCorrupt, "%s at %d", name, at)
		d = newDisk(t, 0)
		require.NoError(t, writeSnapshot(d, 5, 10))
		_, err = Install(d, testDir, bytes.NewReader(bad))
		require.ErrorIs(t, err, ErrCorrupt, "%s at %d", name, at)
		createFile(t, d, "data/outside", bad)
		_, err = InstallFile(d, testDir, "data/outside")
		require.ErrorIs(t, err, ErrCorrupt, "%s at %d", name, at)
		require.Equal(t, []string{"outside", "snap"}, listNames(t, d))
		require.EqualValues(t, 5, requireIndex(t, d, 10))
	}
	for at := range whole {
		check(whole[:at], "cut", at)
		bad := bytes.Clone(whole)
		bad[at] ^= 1 << (at % 8)
		check(bad, "flip", at)
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[at] ^= 1 << bit
			_, err := scanBytes(bad)
			require.ErrorIs(t, err, ErrCorrupt, "byte %d, bit %d", at, bit)
		}
	}
	d := newDisk(t, 0)
	createFile(t, d, "data/snap", append(bytes.Clone(whole), 0))
	_, err := Open(d, testDir)
	require.ErrorIs(t, err, ErrCorrupt, "trailing bytes")
}
