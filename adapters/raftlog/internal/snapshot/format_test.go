package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	raftpb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// withChecksums returns a snapshot file with the frames in b, each of which is a kind, a length u16 and
// a payload. It adds correct CRCs, so that the reader decodes the payloads.
func withChecksums(b []byte) []byte {
	file, crc := appendFileHead(nil)
	for len(b) >= 3 {
		kind, size := b[0], min(int(binary.LittleEndian.Uint16(b[1:])), len(b)-3)
		var frame []byte
		frame, crc = appendFrame(nil, crc, kind, b[3:3+size])
		file, b = append(file, frame...), b[3+size:]
	}
	return file
}

// testFrame returns a frame in the encoding that withChecksums accepts.
func testFrame(kind byte, payload []byte) []byte {
	return append(binary.LittleEndian.AppendUint16([]byte{kind}, uint16(len(payload))), payload...)
}

// FuzzOpen opens arbitrary bytes, and arbitrary frames with correct CRCs, as a snapshot file. Open must
// return an error, or a snapshot that can be read.
func FuzzOpen(f *testing.F) {
	f.Add(encodedSnapshot(f, 3, 30))
	f.Add(encodedSnapshot(f, 3, 0))
	meta, err := metaOf(3).encode()
	require.NoError(f, err)
	size := int64(fileHeadSize + 3*frameOverhead + len(meta) + 4 + endSize)
	f.Add(append(append(testFrame(kindMeta, meta), testFrame(kindData, []byte("data"))...), testFrame(kindEnd, appendEnd(nil, 0, 4, size))...))
	f.Add(append(testFrame(kindData, []byte("data")), testFrame(kindMeta, meta)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, file := range [][]byte{b, withChecksums(b)} {
			d := newDisk(t, 0)
			createFile(t, d, "data/snap", file)
			r, err := Open(d, testDir)
			if err != nil {
				require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion), "%v", err)
				continue
			}
			require.EqualValues(t, len(file), r.Size())
			require.Equal(t, file, readRaw(t, r))
			data, err := io.ReadAll(r.Data())
			require.NoError(t, err)
			require.EqualValues(t, len(data), r.DataSize())
			_, err = io.ReadAll(r.Tables())
			require.NoError(t, err)
			m, err := r.Meta().encode()
			require.NoError(t, err)
			again, ok := decodeMeta(m)
			require.True(t, ok)
			require.Equal(t, r.Meta().Index, again.Index)
			require.True(t, r.Meta().Created.Equal(again.Created))
			require.NoError(t, r.Close())
		}
	})
}

// TestScanner_RejectsInvalidFrames checks that a file with correct CRCs is rejected if its frames are
// invalid.
func TestScanner_RejectsInvalidFrames(t *testing.T) {
	meta, err := metaOf(3).encode()
	require.NoError(t, err)
	good := func(end []byte) []byte {
		return withChecksums(append(append(testFrame(kindMeta, meta), testFrame(kindData, []byte("data"))...), testFrame(kindEnd, end)...))
	}
	size := int64(fileHeadSize + 3*frameOverhead + len(meta) + 4 + endSize)
	_, err = scanBytes(good(appendEnd(nil, 0, 4, size)))
	require.NoError(t, err)
	for name, bad := range map[string][]byte{
		"sizes":            good(appendEnd(nil, 4, 0, size)),
		"file's size":      good(appendEnd(nil, 0, 4, size+1)),
		"no meta":          withChecksums(testFrame(kindData, []byte("data"))),
		"meta of nothing":  withChecksums(testFrame(kindMeta, []byte{0})),
		"wrong cluster":    withChecksums(testFrame(kindMeta, []byte{200})),
		"members":          withChecksums(testFrame(kindMeta, append(meta, 0xff))),
		"two metas":        withChecksums(append(testFrame(kindMeta, meta), testFrame(kindMeta, meta)...)),
		"order":            withChecksums(append(append(testFrame(kindMeta, meta), testFrame(kindData, []byte("d"))...), testFrame(kindTables, []byte("t"))...)),
		"unknown kind":     withChecksums(append(testFrame(kindMeta, meta), testFrame(77, []byte("x"))...)),
		"an empty chunk":   withChecksums(append(testFrame(kindMeta, meta), testFrame(kindData, nil)...)),
		"a short end":      good(make([]byte, 8)),
		"a very long meta": append(withChecksums(nil), kindMeta, 0xff, 0xff, 0xff, 0xff),
		"a long chunk":     append(withChecksums(testFrame(kindMeta, meta)), kindData, 1, 0, 1, 0),
	} {
		_, err := scanBytes(bad)
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
}

func TestOpen_RestoresMeta(t *testing.T) {
	for _, m := range []Meta{
		{Index: 1},
		{Index: 1<<64 - 1, Term: 1<<64 - 1, Cluster: strings.Repeat("ø", 5000), Created: created.In(time.FixedZone("x", 3600))},
		{Index: 2, Created: time.Unix(-1<<55, 999_999_999)},
	} {
		d := newDisk(t, 0)
		w, err := Create(d, testDir, m)
		require.NoError(t, err)
		require.NoError(t, w.Commit())
		r, err := Open(d, testDir)
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
		_, err := Create(d, testDir, m)
		require.ErrorIs(t, err, api.ErrInvalid)
		require.Empty(t, listNames(t, d))
	}
}

func scanBytes(b []byte) (layout, error) {
	s := &scanner{r: bytes.NewReader(b)}
	m, err := s.readMeta()
	if err != nil {
		return layout{}, err
	}
	return s.readSections(m)
}
