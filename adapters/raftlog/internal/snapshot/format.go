package snapshot

// A snapshot file has this format:
//
//	"raftsnap", version u32, crc u32, then frames: kind u8, length u32, payload, crc u32
//	The frames are: one with the metadata, chunks of tables, chunks of data, one end frame
//
// Numbers are little-endian. A crc is the CRC32C of all bytes before it except other crcs, so that
// missing and reordered frames are detected. The end frame contains the sizes of the tables, of
// the data and of the file, u64 each.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	raftpb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

const (
	magic         = "raftsnap"
	version       = 1
	maxChunk      = 64 << 10
	maxMeta       = 1 << 20
	fileHeadSize  = len(magic) + 8
	frameOverhead = 1 + 4 + 4 // the size of a frame in addition to its payload
	endSize       = 24
)

// These are the kinds of the frames in a snapshot file, in the order in which they occur.
const (
	kindMeta = iota + 1
	kindTables
	kindData
	kindEnd
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func updateCRC(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }

// appendFileHead appends the bytes before the first frame of a snapshot file, and returns the CRC of
// these bytes.
func appendFileHead(b []byte) ([]byte, uint32) {
	b = binary.LittleEndian.AppendUint32(append(b, magic...), version)
	crc := updateCRC(0, b)
	return binary.LittleEndian.AppendUint32(b, crc), crc
}

// appendFrame appends a frame to b, which must be empty. crc is the CRC of the file before the frame.
// appendFrame returns the CRC of the file including the frame.
func appendFrame(b []byte, crc uint32, kind byte, payload []byte) ([]byte, uint32) {
	b = binary.LittleEndian.AppendUint32(append(b, kind), uint32(len(payload)))
	b = append(b, payload...)
	crc = updateCRC(crc, b)
	return binary.LittleEndian.AppendUint32(b, crc), crc
}

func (m Meta) encode() ([]byte, error) {
	b := binary.AppendUvarint(nil, uint64(len(m.Cluster)))
	b = append(b, m.Cluster...)
	b = binary.LittleEndian.AppendUint64(b, m.Index)
	b = binary.LittleEndian.AppendUint64(b, m.Term)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Created.Unix()))
	b = binary.LittleEndian.AppendUint32(b, uint32(m.Created.Nanosecond()))
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, m.Conf)
}

// decodeMeta decodes the metadata that Meta.encode has encoded. ok is false if b is invalid.
func decodeMeta(b []byte) (m Meta, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return m, false
	}
	m.Cluster, b = string(b[n:n+int(size)]), b[n+int(size):]
	if len(b) < 28 {
		return m, false
	}
	m.Index = binary.LittleEndian.Uint64(b)
	m.Term = binary.LittleEndian.Uint64(b[8:])
	nanos := binary.LittleEndian.Uint32(b[24:])
	m.Created = time.Unix(int64(binary.LittleEndian.Uint64(b[16:])), int64(nanos)).UTC()
	m.Conf = new(raftpb.ConfState)
	return m, proto.Unmarshal(b[28:], m.Conf) == nil && m.Index > 0 && nanos < 1e9
}

// section is the part of a snapshot file that contains the frames of one kind.
type section struct {
	offset int64  // the offset of the section in the file
	crc    uint32 // the CRC of the file before the section
	size   int64  // the size of all payloads of the section in bytes
}

// layout is what a complete read of a snapshot file has found.
type layout struct {
	meta         Meta
	tables, data section
	size         int64 // the size of the whole file in bytes
}

// scanner reads a snapshot file from the beginning, or the frames of one section. It does not read
// beyond the frame that it returns.
type scanner struct {
	r      io.Reader
	offset int64
	crc    uint32
	buf    []byte
}

func (s *scanner) corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: before byte %d: %s", ErrCorrupt, s.offset, fmt.Sprintf(format, args...))
}

// readBytes returns the next n bytes of the file, which are valid until the next call of readBytes.
func (s *scanner) readBytes(n int) ([]byte, error) {
	if cap(s.buf) < n {
		s.buf = make([]byte, n)
	}
	got, err := io.ReadFull(s.r, s.buf[:n])
	s.offset += int64(got)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, s.corrupt("the file is truncated")
	}
	return s.buf[:n], err
}

// checkCRC reads a CRC from the file, and returns an error if it differs from the CRC of the bytes read
// so far.
func (s *scanner) checkCRC() error {
	crc, err := s.readBytes(4)
	if err == nil && binary.LittleEndian.Uint32(crc) != s.crc {
		err = s.corrupt("wrong CRC")
	}
	return err
}

// readFrame returns the next frame of the file. The payload is valid until the next call of readFrame.
func (s *scanner) readFrame() (kind byte, payload []byte, err error) {
	head, err := s.readBytes(5)
	if err != nil {
		return 0, nil, err
	}
	s.crc = updateCRC(s.crc, head)
	kind, size := head[0], binary.LittleEndian.Uint32(head[1:])
	least, most := uint32(1), uint32(maxChunk)
	switch kind {
	case kindMeta:
		most = maxMeta
	case kindTables, kindData:
	case kindEnd:
		least, most = endSize, endSize
	default:
		return 0, nil, s.corrupt("a frame of the unknown kind %d", kind)
	}
	if size < least || size > most {
		return 0, nil, s.corrupt("a frame of kind %d has %d bytes", kind, size)
	}
	whole, err := s.readBytes(int(size) + 4)
	if err != nil {
		return 0, nil, err
	}
	payload = whole[:size]
	s.crc = updateCRC(s.crc, payload)
	if binary.LittleEndian.Uint32(whole[size:]) != s.crc {
		return 0, nil, s.corrupt("wrong CRC")
	}
	return kind, payload, nil
}

// readMeta reads the head of the file and the frame with the metadata.
func (s *scanner) readMeta() (Meta, error) {
	head, err := s.readBytes(len(magic) + 4)
	if err != nil {
		return Meta{}, err
	}
	if string(head[:len(magic)]) != magic {
		return Meta{}, s.corrupt("the file is not a snapshot: it does not begin with %q", magic)
	}
	s.crc = updateCRC(0, head)
	v := binary.LittleEndian.Uint32(head[len(magic):])
	if err := s.checkCRC(); err != nil {
		return Meta{}, err
	}
	if v != version {
		return Meta{}, fmt.Errorf("%w: version %d, this program supports %d: use the program that has written it, or a newer one", ErrVersion, v, version)
	}
	kind, payload, err := s.readFrame()
	if err != nil {
		return Meta{}, err
	}
	m, ok := decodeMeta(payload)
	if kind != kindMeta || !ok {
		return Meta{}, s.corrupt("invalid metadata")
	}
	return m, nil
}

// readSections reads all frames after the metadata, up to and including the end frame.
func (s *scanner) readSections(m Meta) (layout, error) {
	l := layout{meta: m}
	l.tables = section{offset: s.offset, crc: s.crc}
	l.data = l.tables
	last := byte(kindMeta)
	for {
		kind, payload, err := s.readFrame()
		switch {
		case err != nil:
			return layout{}, err
		case kind < last || kind == kindMeta:
			return layout{}, s.corrupt("a frame of kind %d follows a frame of kind %d", kind, last)
		case kind == kindTables:
			l.tables.size += int64(len(payload))
			l.data.offset, l.data.crc = s.offset, s.crc
		case kind == kindData:
			l.data.size += int64(len(payload))
		default:
			l.size = s.offset
			if want := appendEnd(nil, l.tables.size, l.data.size, l.size); string(want) != string(payload) {
				return layout{}, s.corrupt("the sizes in the end frame are wrong")
			}
			return l, nil
		}
		last = kind
	}
}

func appendEnd(b []byte, tables, data, file int64) []byte {
	for _, n := range []int64{tables, data, file} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}
