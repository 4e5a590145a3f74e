// This file writes a View as bytes for a snapshot and reads them again:
//
//	"raftids" version=1, blocks, then the end: 4 zero bytes, count u64, crc u32
//	block: length u32 (1 to 64 KiB), that many bytes, crc u32
//
// Numbers are little-endian. A block holds whole entries in the order of their IDs; each is
// uvarint milliseconds since the one before, 10 bytes of the ID, varint of the index less
// the one before, sum u32. The first entry counts from zero. A crc is the CRC32C of all that
// was written before it but for other crcs, so blocks cannot be missing or change places.
// Equal tables give equal bytes.

package ids

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// ErrCorrupt: the bytes are not those of a table, or are damaged.
var ErrCorrupt = errors.New("ids: table of request IDs is damaged")

const (
	magic    = "raftids\x01"
	maxBlock = 64 << 10
	maxEntry = binary.MaxVarintLen64 + 10 + binary.MaxVarintLen64 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// WriteTo writes the view for [Read] and returns how many bytes that were. It buffers up to
// 64 KiB.
func (v *View) WriteTo(w io.Writer) (int64, error) {
	b := &blockWriter{w: w, block: make([]byte, 4, 4+maxBlock+4)}
	b.write([]byte(magic))
	var last entry
	v.all(func(e entry) error {
		if len(b.block)+maxEntry > 4+maxBlock {
			b.flush()
		}
		b.block = appendEntry(b.block, last, e)
		last = e
		return b.err
	})
	if len(b.block) > 4 {
		b.flush()
	}
	end := binary.LittleEndian.AppendUint64(make([]byte, 4), uint64(v.len))
	b.crc = crc32.Update(b.crc, castagnoli, end)
	b.send(binary.LittleEndian.AppendUint32(end, b.crc))
	if b.err != nil {
		return b.written, fmt.Errorf("ids: write table: %w", b.err)
	}
	return b.written, nil
}

func millis(id requestid.ID) uint64 { return binary.BigEndian.Uint64(id[:8]) >> 16 }

func appendEntry(b []byte, last, e entry) []byte {
	b = binary.AppendUvarint(b, millis(e.id)-millis(last.id))
	b = append(b, e.id[6:]...)
	b = binary.AppendVarint(b, int64(e.index-last.index)) // wraps, and back when read
	return binary.LittleEndian.AppendUint32(b, e.sum)
}

// blockWriter frames what is in block, after 4 bytes for its length.
type blockWriter struct {
	w       io.Writer
	block   []byte
	crc     uint32
	written int64
	err     error
}

func (b *blockWriter) write(p []byte) {
	b.crc = crc32.Update(b.crc, castagnoli, p)
	b.send(p)
}

func (b *blockWriter) send(p []byte) {
	if b.err != nil {
		return
	}
	n, err := b.w.Write(p)
	b.written += int64(n)
	b.err = err
}

func (b *blockWriter) flush() {
	binary.LittleEndian.PutUint32(b.block, uint32(len(b.block)-4))
	b.crc = crc32.Update(b.crc, castagnoli, b.block)
	b.send(binary.LittleEndian.AppendUint32(b.block, b.crc))
	b.block = b.block[:4]
}

// Read returns the table that a View has written. It reads up to the table's end and not a
// byte more. Damaged bytes are refused with ErrCorrupt, other errors of r are wrapped; the
// memory that it takes is in proportion to what r gave, and 64 KiB.
func Read(r io.Reader) (*Table, error) {
	b := &blockReader{r: r}
	if head := b.next(len(magic)); b.err == nil && string(head) != magic {
		b.damaged("it begins with %q, not with %q", head, magic)
	}
	t, last := New(), entry{}
	for b.err == nil {
		block := b.readBlock()
		if len(block) == 0 {
			break
		}
		for len(block) > 0 && b.err == nil {
			var e entry
			if e, block = b.cutEntry(block, last, t.len == 0); b.err == nil {
				t.insert(e)
				last = e
			}
		}
	}
	if end := b.next(8); b.err == nil {
		if count := binary.LittleEndian.Uint64(end); count != uint64(t.len) {
			b.damaged("it says that it has %d IDs and has %d", count, t.len)
		}
	}
	b.check()
	if b.err != nil {
		return nil, fmt.Errorf("ids: read table: %w", b.err)
	}
	return t, nil
}

type blockReader struct {
	r   io.Reader
	at  int64
	crc uint32
	buf []byte
	err error
}

func (b *blockReader) damaged(format string, args ...any) {
	b.err = fmt.Errorf("%w: before byte %d: %s; take another snapshot", ErrCorrupt, b.at, fmt.Sprintf(format, args...))
}

// next returns the next n bytes, valid until the next call.
func (b *blockReader) next(n int) []byte {
	p := b.read(n)
	b.crc = crc32.Update(b.crc, castagnoli, p)
	return p
}

func (b *blockReader) read(n int) []byte {
	if b.err != nil {
		return nil
	}
	if cap(b.buf) < n {
		b.buf = make([]byte, n)
	}
	got, err := io.ReadFull(b.r, b.buf[:n])
	b.at += int64(got)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		b.damaged("it ends too early")
	case err != nil:
		b.err = err
	default:
		return b.buf[:n]
	}
	return nil
}

// check reads a crc.
func (b *blockReader) check() {
	if crc := b.read(4); b.err == nil && binary.LittleEndian.Uint32(crc) != b.crc {
		b.damaged("wrong CRC")
	}
}

// readBlock returns a block's bytes, or none at the end. The caller may keep them until the
// next call.
func (b *blockReader) readBlock() []byte {
	length := b.next(4)
	if b.err != nil {
		return nil
	}
	n := binary.LittleEndian.Uint32(length)
	if n == 0 {
		return nil
	}
	if n > maxBlock {
		b.damaged("a block of %d bytes", n)
		return nil
	}
	block := bytes.Clone(b.next(int(n)))
	if b.check(); b.err != nil {
		return nil
	}
	return block
}

// cutEntry takes one entry from the front of a block.
func (b *blockReader) cutEntry(block []byte, last entry, first bool) (entry, []byte) {
	step, n := binary.Uvarint(block)
	if n <= 0 || len(block) < n+10 || step >= 1<<48-millis(last.id) {
		b.damaged("an ID's time is not one")
		return entry{}, nil
	}
	var e entry
	binary.BigEndian.PutUint64(e.id[:8], (millis(last.id)+step)<<16)
	block = block[n+copy(e.id[6:], block[n:]):]
	delta, n := binary.Varint(block)
	if n <= 0 || len(block) < n+4 {
		b.damaged("an ID's index is not one")
		return entry{}, nil
	}
	e.index = last.index + uint64(delta)
	e.sum = binary.LittleEndian.Uint32(block[n:])
	if !first && bytes.Compare(e.id[:], last.id[:]) <= 0 {
		b.damaged("IDs are not in order")
		return entry{}, nil
	}
	return e, block[n+4:]
}
