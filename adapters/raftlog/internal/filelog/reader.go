package filelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

// position is the end of those records of a segment that were read or written so far.
type position struct {
	end    int64  // the offset of the next record
	number uint64 // the number of the last record
	crc    uint32 // the checksum of the last record
	chain  uint32 // the checksum of the checksums of all records, which the next segment's header contains
}

// advance returns the position after one more record, which has size bytes with its head.
func (p position) advance(size int, number uint64, crc uint32) position {
	return position{alignUp(p.end + int64(size)), number, crc, extendChecksum(p.chain, crc)}
}

// record is a decoded record. One of the fields header, batch and mark is set, depending on head.kind.
type record struct {
	offset int64
	head   recordHead
	header segmentHeader
	batch  batch
	mark   mark
}

// entriesOffset returns the offset in the segment at which the entries of a batch begin.
func (r *record) entriesOffset() int64 {
	return r.offset + headSize + int64(r.head.length) - int64(len(r.batch.entries))
}

// readSize is the number of bytes that a segmentReader reads at a time.
const readSize = 1 << 20

// segmentReader reads and verifies the records of a segment in order.
type segmentReader struct {
	id   segmentID
	name string
	file disk.File
	size int64    // the size of the file, or of the part of the file to read
	at   position // the position after the last record that was read

	record       record
	buffer       []byte
	bufferOffset int64
}

func (s *segment) newReader() (*segmentReader, error) {
	r := &segmentReader{id: s.id, name: s.name, file: s.file}
	return r, r.refresh()
}

// refresh discards the buffer and determines the size of the file again, so that the reader sees what
// was written since.
func (r *segmentReader) refresh() (err error) {
	r.buffer = r.buffer[:0]
	r.size, err = r.file.Size()
	return err
}

// readBytes returns n bytes at the given offset, or fewer if the file is shorter. The bytes are valid until
// the next call of readBytes.
func (r *segmentReader) readBytes(offset int64, n int) ([]byte, error) {
	if i := offset - r.bufferOffset; i >= 0 && i+int64(n) <= int64(len(r.buffer)) {
		return r.buffer[i : i+int64(n)], nil
	}
	want := int(min(int64(max(n, readSize)), max(r.size-offset, 0)))
	if cap(r.buffer) < want {
		r.buffer = make([]byte, want)
	}
	r.buffer, r.bufferOffset = r.buffer[:want], offset
	if want == 0 {
		return nil, nil
	}
	got, err := r.file.ReadAt(r.buffer, offset)
	r.buffer = r.buffer[:got]
	if got < want && err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return r.buffer[:min(n, got)], nil
}

// readRecord returns the next record, or nil if no further record is readable. The first record is the
// header; it is an error if the header is not readable. The record is valid until the next call of
// readRecord.
func (r *segmentReader) readRecord() (*record, error) {
	head, raw, err := r.readRaw()
	switch {
	case err != nil:
		return nil, err
	case raw == nil && r.at.end == 0:
		return nil, corrupt(r.name, 0, "the segment's header is not readable")
	case raw == nil:
		return nil, nil
	case (r.at.end == 0) != (head.kind == typeHeader):
		return nil, corrupt(r.name, r.at.end, "a record here cannot have type %d", head.kind)
	}
	r.record = record{offset: r.at.end, head: head}
	if err := r.decodePayload(raw[headSize:]); err != nil {
		return nil, corrupt(r.name, r.at.end, "%v", err)
	}
	r.at = r.at.advance(len(raw), head.number, head.crc)
	return &r.record, nil
}

// readRaw returns the head and all bytes of the next record. The bytes are nil if the next record is
// not readable, or does not follow the previous record.
func (r *segmentReader) readRaw() (recordHead, []byte, error) {
	if r.at.end >= math.MaxUint32 {
		return recordHead{}, nil, nil
	}
	b, err := r.readBytes(r.at.end, headSize)
	if err != nil || len(b) < headSize {
		return recordHead{}, nil, err
	}
	head, ok := r.id.decodeHead(b, r.at.end)
	size := headSize + int64(head.length)
	if !ok || r.at.end > 0 && head.number != r.at.number+1 || r.at.end+size > r.size {
		return recordHead{}, nil, nil
	}
	b, err = r.readBytes(r.at.end, int(size))
	if err != nil || int64(len(b)) < size || recordChecksum(b, r.at.crc) != head.crc {
		return recordHead{}, nil, err
	}
	return head, b, nil
}

// decodePayload decodes the payload of the record r.record, depending on the type of the record.
func (r *segmentReader) decodePayload(payload []byte) (err error) {
	switch kind := r.record.head.kind; kind {
	case typeHeader:
		r.record.header, err = decodeSegmentHeader(payload)
		if id := r.record.header.id; err == nil && id != r.id {
			return fmt.Errorf("the header belongs to segment %s", id.fileName())
		}
	case typeBatch:
		r.record.batch, err = decodeBatch(payload)
	case typeMark:
		r.record.mark, err = decodeMark(payload)
	default:
		return fmt.Errorf("the record has type %d, which this program does not know", kind)
	}
	return err
}

// findTail returns the offset after the last byte that is not zero, or r.at.end if all bytes after the
// records are zero. Such bytes are a torn tail: a crash can leave any parts of records that were not
// durable. The error wraps ErrCorrupt if a later head proves that the record that is missing at r.at
// was durable, or if the file ends within a record: the log allocates space durably before it writes a
// record there.
func (r *segmentReader) findTail() (int64, error) {
	dirty := r.at.end
	missing := r.at.number + 1
	for offset := r.at.end; offset < r.size; {
		b, err := r.readBytes(offset, int(min(readSize, r.size-offset)))
		if err != nil {
			return 0, err
		}
		if len(b) == 0 {
			break
		}
		if isZero(b) {
			offset += int64(len(b))
			continue
		}
		whole := len(b) &^ (alignment - 1)
		for i := 0; i < whole; i += alignment {
			if binary.LittleEndian.Uint64(b[i:]) == 0 {
				continue
			}
			dirty = offset + int64(i) + alignment
			if len(b)-i < headSize {
				continue // the next part contains the rest of this head, or the file ends here
			}
			at := offset + int64(i)
			head, ok := r.id.decodeHead(b[i:i+headSize], at)
			if ok && at+headSize+int64(head.length) > r.size {
				return 0, r.truncatedError()
			}
			if ok && head.durable >= missing {
				return 0, corrupt(r.name, r.at.end, "record %d is not readable, but record %d at offset %d was written after it was durable",
					missing, head.number, at)
			}
		}
		for i := whole; i < len(b); i++ {
			if b[i] != 0 {
				dirty = offset + int64(i) + 1
			}
		}
		if len(b) < readSize {
			break
		}
		offset += readSize - headSize
	}
	if dirty > r.at.end && r.size-r.at.end < headSize {
		return 0, r.truncatedError()
	}
	return dirty, nil
}

func (r *segmentReader) truncatedError() error {
	return corrupt(r.name, r.size, "the file ends within a record: it was truncated")
}

// isZero reports whether all bytes are zero, as in most of the active segment.
func isZero(b []byte) bool { return b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1]) }

// verifyTail returns an error that wraps ErrCorrupt if a durable record after r.at is damaged. If
// another process writes the segment, a record may have become readable since the reader reached it, so
// verifyTail reads the record again. A record that was durable when a later record was written is
// readable unless it is damaged.
func (r *segmentReader) verifyTail() error {
	for {
		if err := r.refresh(); err != nil {
			return err
		}
		_, damage := r.findTail()
		if damage == nil {
			return nil
		}
		end := r.at.end
		if err := r.skipRecords(); err != nil || r.at.end == end {
			return errors.Join(damage, err)
		}
	}
}

// skipRecords reads all records that were written since the last refresh.
func (r *segmentReader) skipRecords() error {
	if err := r.refresh(); err != nil {
		return err
	}
	for {
		if next, err := r.readRecord(); next == nil {
			return err
		}
	}
}
