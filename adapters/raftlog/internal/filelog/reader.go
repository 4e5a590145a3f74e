package filelog

// Reading a segment from its beginning to where its records end, and judging what follows.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

const suffix = ".seg"

// Suffix ends the names of the log's files.
const Suffix = suffix

func (p place) name() string { return fmt.Sprintf("%016x-%08x%s", p.first, p.seq, suffix) }

// parseName reads a segment's name. It is false if the name is no segment's.
func parseName(name string) (place, bool) {
	first, seq, ok := strings.Cut(strings.TrimSuffix(name, suffix), "-")
	f, err1 := strconv.ParseUint(first, 16, 64)
	s, err2 := strconv.ParseUint(seq, 16, 64)
	p := place{f, s}
	return p, ok && err1 == nil && err2 == nil && p.name() == name
}

// window reads a file from the beginning to the end, in large pieces.
type window struct {
	f    io.ReaderAt
	buf  []byte
	off  int64 // of buf in the file
	size int64
}

const windowSize = 1 << 20

// bytes returns the n bytes at off, valid until the next call. They are fewer where the file
// ends.
func (w *window) bytes(off int64, n int) ([]byte, error) {
	if at := off - w.off; at >= 0 && at+int64(n) <= int64(len(w.buf)) {
		return w.buf[at : at+int64(n)], nil
	}
	want := int(min(int64(max(n, windowSize)), max(w.size-off, 0)))
	if cap(w.buf) < want {
		w.buf = make([]byte, want)
	}
	w.buf, w.off = w.buf[:want], off
	if want == 0 {
		return nil, nil
	}
	got, err := w.f.ReadAt(w.buf, off)
	w.buf = w.buf[:got]
	if got < want && err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return w.buf[:min(n, got)], nil
}

// walked is where the records of a segment end.
type walked struct {
	end    int64
	number uint64 // of the last record
	crc    uint32 // of the last record
	chain  uint32 // of them all
}

// walk calls do with every record of the segment, until one does not fit. The first must be
// the header.
func (p place) walk(name string, w *window, do func(off int64, h head, payload []byte) error) (walked, error) {
	var at walked
	for at.end < math.MaxUint32 {
		b, err := w.bytes(at.end, headSize)
		if err != nil {
			return at, err
		}
		if len(b) < headSize {
			break
		}
		h, ok := p.head(b, at.end)
		if !ok || at.end > 0 && h.number != at.number+1 || at.end+headSize+int64(h.length) > w.size {
			break
		}
		b, err = w.bytes(at.end, headSize+int(h.length))
		if err != nil {
			return at, err
		}
		if len(b) < headSize+int(h.length) || recordCRC(b, at.crc) != h.crc {
			break
		}
		if (at.end == 0) != (h.kind == typeHeader) {
			return at, corrupt(name, at.end, "record of type %d", h.kind)
		}
		if err := do(at.end, h, b[headSize:]); err != nil {
			return at, err
		}
		at = walked{aligned(at.end + headSize + int64(h.length)), h.number, h.crc, chain(at.chain, h.crc)}
	}
	if at.end == 0 {
		return at, corrupt(name, 0, "the segment's header is not readable")
	}
	return at, nil
}

// tail looks at what follows the last segment's records, and returns where the last byte of it
// is that is not zero. What a crash has left of unsynced records may be there in any pieces.
// But a head that says that the record missing at at.end was durable is the proof that it is
// not a crash that has taken it.
func (p place) tail(name string, w *window, at walked) (int64, error) {
	dirty := at.end
	missing := at.number + 1
	for off := at.end; off < w.size; {
		b, err := w.bytes(off, int(min(windowSize, w.size-off)))
		if err != nil {
			return 0, err
		}
		if len(b) == 0 {
			break
		}
		if zero(b) {
			off += int64(len(b))
			continue
		}
		whole := len(b) &^ (align - 1)
		for i := 0; i < whole; i += align {
			if binary.LittleEndian.Uint64(b[i:]) == 0 {
				continue
			}
			dirty = off + int64(i) + align
			if len(b)-i < headSize {
				continue // looked at with the next piece, or too near to the end of the file
			}
			h, ok := p.head(b[i:i+headSize], off+int64(i))
			if ok && h.synced >= missing {
				return 0, corrupt(name, at.end, "record %d is not readable, but record %d at offset %d was written after it was durable",
					missing, h.number, off+int64(i))
			}
		}
		for i := whole; i < len(b); i++ {
			if b[i] != 0 {
				dirty = off + int64(i) + 1
			}
		}
		if len(b) < windowSize {
			break
		}
		off += windowSize - headSize
	}
	return dirty, nil
}

// zero reports whether all bytes are zero, as most of a segment is.
func zero(b []byte) bool { return b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1]) }

// scanned is what one segment holds.
type scanned struct {
	header header
	number uint64 // of the header
	walked
	offs  []uint32
	last  uint64 // index of the last entry; header.first-1 if there is none
	runs  runs
	state state // of this segment's records, in which the commit index is only ever raised
	mark  mark
}

// scan reads and verifies a segment.
func (p place) scan(name string, f disk.File) (*scanned, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	s := &scanned{last: p.first - 1}
	w := &window{f: f, size: size}
	s.walked, err = p.walk(name, w, func(off int64, h head, payload []byte) error {
		switch h.kind {
		case typeHeader:
			s.header, err = readHeader(payload)
			if err == nil && s.header.place != p {
				err = fmt.Errorf("this is the header of %s", s.header.name())
			}
			s.number, s.state, s.mark = h.number, s.header.state, s.header.mark
		case typeBatch:
			err = s.batch(off+headSize, payload)
		case typeMark:
			if len(payload) != markSize {
				err = fmt.Errorf("compaction mark of %d bytes", len(payload))
				break
			}
			s.setMark(readMark(payload))
		default:
			err = fmt.Errorf("record of type %d, which this program does not know", h.kind)
		}
		if err != nil {
			return corrupt(name, off, "%v", err)
		}
		return nil
	})
	return s, err
}

func (s *scanned) setMark(m mark) {
	if m.index > s.mark.index {
		s.mark = m
	}
	s.state.raise(s.mark.index)
}

func (s *scanned) batch(off int64, payload []byte) error {
	b, err := readBatch(payload)
	if err != nil {
		return err
	}
	if b.count > 0 {
		if b.first < s.header.first || b.first > s.last+1 {
			return fmt.Errorf("entries from index %d on, after %d to %d", b.first, s.header.first, s.last)
		}
		s.offs = s.offs[:b.first-s.header.first]
		s.runs = s.runs.cut(b.first)
		s.last = b.first + uint64(b.count) - 1
	}
	if b.state.ok {
		b.state.raise(s.state.commit)
		s.state = b.state
	}
	off += int64(len(payload) - len(b.rest))
	if off+int64(len(b.rest)) > math.MaxUint32 {
		return fmt.Errorf("batch lies beyond what a segment may have")
	}
	index := b.first
	return b.visit(func(at int, raw []byte) {
		s.offs = append(s.offs, uint32(off)+uint32(at))
		s.runs = s.runs.add(index, rawTerm(raw))
		index++
	})
}

// raise lets the commit index, which is never lowered, be commit at least.
func (s *state) raise(commit uint64) {
	if s.ok {
		s.commit = max(s.commit, commit)
	}
}
