package snapshot

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// reframed makes a file of what b says frames are, each a kind, a length u16 and a payload,
// with CRCs as they should be, so that what is in the frames is looked at.
func reframed(b []byte) []byte {
	file, crc := appendHead(nil)
	for len(b) >= 3 {
		kind, size := b[0], min(int(binary.LittleEndian.Uint16(b[1:])), len(b)-3)
		var frame []byte
		frame, crc = appendFrame(nil, crc, kind, b[3:3+size])
		file, b = append(file, frame...), b[3+size:]
	}
	return file
}

func frame(kind byte, payload []byte) []byte {
	return append(binary.LittleEndian.AppendUint16([]byte{kind}, uint16(len(payload))), payload...)
}

func FuzzOpen(f *testing.F) {
	f.Add(rawOf(f, 3, 30))
	f.Add(rawOf(f, 3, 0))
	meta, err := metaOf(3).marshal()
	require.NoError(f, err)
	size := int64(headSize + 3*overhead + len(meta) + 4 + endSize)
	f.Add(append(append(frame(kindMeta, meta), frame(kindData, []byte("data"))...), frame(kindEnd, appendEnd(nil, 0, 4, size))...))
	f.Add(append(frame(kindData, []byte("data")), frame(kindMeta, meta)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, file := range [][]byte{b, reframed(b)} {
			d := newDisk(t, 0)
			put(t, d, "data/snap", file)
			r, err := Open(d, dir)
			if err != nil {
				require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion), "%v", err)
				continue
			}
			require.EqualValues(t, len(file), r.Size())
			require.Equal(t, file, raw(t, r))
			data, err := io.ReadAll(r.Data())
			require.NoError(t, err)
			require.EqualValues(t, len(data), r.DataSize())
			_, err = io.ReadAll(r.Tables())
			require.NoError(t, err)
			m, err := r.Meta().marshal()
			require.NoError(t, err)
			again, ok := unmarshalMeta(m)
			require.True(t, ok)
			require.Equal(t, r.Meta().Index, again.Index)
			require.True(t, r.Meta().Created.Equal(again.Created))
			require.NoError(t, r.Close())
		}
	})
}

// The seeds of the fuzz test have to get as far as they are meant to.
func TestReframed(t *testing.T) {
	meta, err := metaOf(3).marshal()
	require.NoError(t, err)
	good := func(end []byte) []byte {
		return reframed(append(append(frame(kindMeta, meta), frame(kindData, []byte("data"))...), frame(kindEnd, end)...))
	}
	size := int64(headSize + 3*overhead + len(meta) + 4 + endSize)
	_, err = scanAll(good(appendEnd(nil, 0, 4, size)))
	require.NoError(t, err)
	for name, bad := range map[string][]byte{
		"sizes":            good(appendEnd(nil, 4, 0, size)),
		"file's size":      good(appendEnd(nil, 0, 4, size+1)),
		"no meta":          reframed(frame(kindData, []byte("data"))),
		"meta of nothing":  reframed(frame(kindMeta, []byte{0})),
		"wrong cluster":    reframed(frame(kindMeta, []byte{200})),
		"members":          reframed(frame(kindMeta, append(meta, 0xff))),
		"two metas":        reframed(append(frame(kindMeta, meta), frame(kindMeta, meta)...)),
		"order":            reframed(append(append(frame(kindMeta, meta), frame(kindData, []byte("d"))...), frame(kindTables, []byte("t"))...)),
		"unknown kind":     reframed(append(frame(kindMeta, meta), frame(77, []byte("x"))...)),
		"an empty chunk":   reframed(append(frame(kindMeta, meta), frame(kindData, nil)...)),
		"a short end":      good(make([]byte, 8)),
		"a very long meta": append(reframed(nil), kindMeta, 0xff, 0xff, 0xff, 0xff),
		"a long chunk":     append(reframed(frame(kindMeta, meta)), kindData, 1, 0, 1, 0),
	} {
		_, err := scanAll(bad)
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
}
