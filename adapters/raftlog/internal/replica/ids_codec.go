// An IDsView is written to a snapshot in this format:
//
//	"raftids" version=2, count u64, buckets, crc u32
//
// Each bucket has 512 entries, except for the last one, and consists of its header and its
// data; see the types. Numbers are big-endian. crc is the CRC32C of everything before it.
// Views with the same IDs, indexes and sums have the same bytes.

package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// ErrCorruptIDs is returned if bytes are not a complete and undamaged table of request IDs.
var ErrCorruptIDs = errors.New("raftlog: table of request IDs is damaged")

const idsMagic = "raftids\x02"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// append appends the encoding of the bucket to p.
func (b *bucket) append(p []byte) []byte {
	p, _ = binary.Append(p, binary.BigEndian, b.bucketHeader) // cannot fail, because the size of the header is fixed
	return append(p, b.data...)
}

// WriteTo writes the view in the format that readIDs reads, and returns the number of bytes written. It
// buffers less than 64 KiB.
func (v *IDsView) WriteTo(w io.Writer) (int64, error) {
	written, crc := int64(0), uint32(0)
	buf := binary.BigEndian.AppendUint64([]byte(idsMagic), uint64(v.len))
	flush := func() error {
		n, err := w.Write(buf)
		written += int64(n)
		if err != nil {
			return fmt.Errorf("raftlog: write the table of request IDs: %w", err)
		}
		crc = crc32.Update(crc, castagnoli, buf)
		buf = buf[:0]
		return nil
	}
	entries := make([]idEntry, 0, maxEntries)
	left := v.len
	for _, b := range v.buckets {
		for i := range b.len() {
			entries = append(entries, b.entry(i))
			if left--; left > 0 && len(entries) < maxEntries {
				continue
			}
			buf = newBucket(entries).append(buf)
			if err := flush(); err != nil {
				return written, err
			}
			entries = entries[:0]
		}
	}
	if err := flush(); err != nil { // if the table is empty, this writes the header
		return written, err
	}
	buf = binary.BigEndian.AppendUint32(buf, crc)
	return written, flush()
}

// readIDs returns the table that an IDsView has written to r. It does not read beyond the table. Errors
// wrap ErrCorruptIDs if the bytes are damaged, or the error of r. The memory that readIDs allocates is
// proportional to the number of bytes in r.
func readIDs(r io.Reader) (*IDs, error) {
	t, err := decodeIDs(r)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: the table ends early", ErrCorruptIDs)
	}
	if err != nil {
		return nil, fmt.Errorf("raftlog: read the table of request IDs: %w", err)
	}
	return t, nil
}

func decodeIDs(r io.Reader) (*IDs, error) {
	crc := crc32.New(castagnoli)
	body := io.TeeReader(r, crc)
	var head struct {
		Magic [len(idsMagic)]byte
		Count uint64
	}
	if err := binary.Read(body, binary.BigEndian, &head); err != nil {
		return nil, err
	}
	if string(head.Magic[:]) != idsMagic {
		return nil, fmt.Errorf("%w: the table starts with %q instead of %q", ErrCorruptIDs, head.Magic, idsMagic)
	}
	t := newIDs()
	for left := head.Count; left > 0; left = head.Count - uint64(t.len) {
		b, err := readBucket(body, int(min(left, maxEntries)))
		if err != nil {
			return nil, err
		}
		if last := len(t.buckets) - 1; last >= 0 && compareID(t.buckets[last].lastEntry(), b.First) >= 0 {
			return nil, fmt.Errorf("%w: IDs are not in order", ErrCorruptIDs)
		}
		t.buckets = append(t.buckets, b)
		t.len += b.len()
	}
	want := crc.Sum32()
	var sum uint32
	if err := binary.Read(r, binary.BigEndian, &sum); err != nil {
		return nil, err
	}
	if sum != want {
		return nil, fmt.Errorf("%w: wrong CRC", ErrCorruptIDs)
	}
	return t, nil
}

// readBucket reads a bucket of n entries from r.
func readBucket(r io.Reader, n int) (*bucket, error) {
	b := new(bucket)
	if err := binary.Read(r, binary.BigEndian, &b.bucketHeader); err != nil {
		return nil, err
	}
	if b.TimeWidth > timeBytes || b.IndexWidth > 8 {
		return nil, fmt.Errorf("%w: a bucket has times of %d bytes and indexes of %d bytes", ErrCorruptIDs, b.TimeWidth, b.IndexWidth)
	}
	b.data = make([]byte, n*b.entrySize())
	if _, err := io.ReadFull(r, b.data); err != nil {
		return nil, err
	}
	entries := make([]idEntry, n)
	for i := range entries {
		entries[i] = b.entry(i)
		if i > 0 && compareID(entries[i-1], entries[i].id) >= 0 {
			return nil, fmt.Errorf("%w: IDs are not in order", ErrCorruptIDs)
		}
	}
	// Accept only the bucket that newBucket returns for these entries, which excludes overflows.
	packed := newBucket(entries)
	if packed.bucketHeader != b.bucketHeader || !bytes.Equal(packed.data, b.data) {
		return nil, fmt.Errorf("%w: a bucket is not in its shortest form", ErrCorruptIDs)
	}
	return packed, nil
}
