// This file has the format:
//
//	"raftsnap", version u32, crc u32, then frames: kind u8, length u32, payload, crc u32
//	Meta once, chunks of tables, chunks of data, the end once; and nothing after it
//
// Numbers are little-endian. A crc is the CRC32C of all that is before it but for other crcs,
// so frames cannot be missing or change places. The end has the bytes of tables, those of
// data and those of the file, u64 each.

package snapshot

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
	magic    = "raftsnap"
	version  = 1
	maxChunk = 64 << 10
	maxMeta  = 1 << 20
	headSize = len(magic) + 8
	overhead = 1 + 4 + 4 // of a frame
	endSize  = 24
)

// The kinds of frames, in their order.
const (
	kindMeta = iota + 1
	kindTables
	kindData
	kindEnd
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }

// appendHead appends what a file begins with and returns the crc of it.
func appendHead(b []byte) ([]byte, uint32) {
	b = binary.LittleEndian.AppendUint32(append(b, magic...), version)
	crc := checksum(0, b)
	return binary.LittleEndian.AppendUint32(b, crc), crc
}

// appendFrame appends a frame to b, which is empty, and returns the crc with it.
func appendFrame(b []byte, crc uint32, kind byte, payload []byte) ([]byte, uint32) {
	b = binary.LittleEndian.AppendUint32(append(b, kind), uint32(len(payload)))
	b = append(b, payload...)
	crc = checksum(crc, b)
	return binary.LittleEndian.AppendUint32(b, crc), crc
}

func (m Meta) marshal() ([]byte, error) {
	b := binary.AppendUvarint(nil, uint64(len(m.Cluster)))
	b = append(b, m.Cluster...)
	b = binary.LittleEndian.AppendUint64(b, m.Index)
	b = binary.LittleEndian.AppendUint64(b, m.Term)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Created.Unix()))
	b = binary.LittleEndian.AppendUint32(b, uint32(m.Created.Nanosecond()))
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, m.Conf)
}

// unmarshalMeta returns what marshal has written; ok is false if b is not that.
func unmarshalMeta(b []byte) (m Meta, ok bool) {
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

// section is where the frames of one kind are.
type section struct {
	at   int64  // in the file
	crc  uint32 // of what is before
	size int64  // of the payloads together
}

// layout is what is known of a snapshot when all of it was read.
type layout struct {
	meta         Meta
	tables, data section
	size         int64 // of the file
}

// scanner reads a snapshot from its beginning, or the frames of a section. It reads no byte
// more than it returns the meaning of.
type scanner struct {
	r   io.Reader
	at  int64
	crc uint32
	buf []byte
}

func (s *scanner) damaged(format string, args ...any) error {
	return fmt.Errorf("%w: before byte %d: %s", ErrCorrupt, s.at, fmt.Sprintf(format, args...))
}

// read returns the next n bytes, valid until the next call.
func (s *scanner) read(n int) ([]byte, error) {
	if cap(s.buf) < n {
		s.buf = make([]byte, n)
	}
	got, err := io.ReadFull(s.r, s.buf[:n])
	s.at += int64(got)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, s.damaged("it ends too early")
	}
	return s.buf[:n], err
}

// check reads a crc.
func (s *scanner) check() error {
	crc, err := s.read(4)
	if err == nil && binary.LittleEndian.Uint32(crc) != s.crc {
		err = s.damaged("wrong CRC")
	}
	return err
}

// frame returns the next frame; the payload is valid until the next call.
func (s *scanner) frame() (kind byte, payload []byte, err error) {
	head, err := s.read(5)
	if err != nil {
		return 0, nil, err
	}
	s.crc = checksum(s.crc, head)
	kind, size := head[0], binary.LittleEndian.Uint32(head[1:])
	least, most := uint32(1), uint32(maxChunk)
	switch kind {
	case kindMeta:
		most = maxMeta
	case kindTables, kindData:
	case kindEnd:
		least, most = endSize, endSize
	default:
		return 0, nil, s.damaged("a frame of the unknown kind %d", kind)
	}
	if size < least || size > most {
		return 0, nil, s.damaged("a frame of kind %d has %d bytes", kind, size)
	}
	whole, err := s.read(int(size) + 4)
	if err != nil {
		return 0, nil, err
	}
	payload = whole[:size]
	s.crc = checksum(s.crc, payload)
	if binary.LittleEndian.Uint32(whole[size:]) != s.crc {
		return 0, nil, s.damaged("wrong CRC")
	}
	return kind, payload, nil
}

// meta reads what a file begins with.
func (s *scanner) meta() (Meta, error) {
	head, err := s.read(len(magic) + 4)
	if err != nil {
		return Meta{}, err
	}
	if string(head[:len(magic)]) != magic {
		return Meta{}, s.damaged("it begins with %q, which no snapshot does", head[:len(magic)])
	}
	s.crc = checksum(0, head)
	v := binary.LittleEndian.Uint32(head[len(magic):])
	if err := s.check(); err != nil {
		return Meta{}, err
	}
	if v != version {
		return Meta{}, fmt.Errorf("%w: version %d, this program supports %d: use the program that has written it, or a newer one", ErrVersion, v, version)
	}
	kind, payload, err := s.frame()
	if err != nil {
		return Meta{}, err
	}
	m, ok := unmarshalMeta(payload)
	if kind != kindMeta || !ok {
		return Meta{}, s.damaged("it does not say what it is of")
	}
	return m, nil
}

// rest reads all that follows the meta.
func (s *scanner) rest(m Meta) (layout, error) {
	l := layout{meta: m}
	l.tables = section{at: s.at, crc: s.crc}
	l.data = l.tables
	last := byte(kindMeta)
	for {
		kind, payload, err := s.frame()
		switch {
		case err != nil:
			return layout{}, err
		case kind < last || kind == kindMeta:
			return layout{}, s.damaged("a frame of kind %d after one of kind %d", kind, last)
		case kind == kindTables:
			l.tables.size += int64(len(payload))
			l.data.at, l.data.crc = s.at, s.crc
		case kind == kindData:
			l.data.size += int64(len(payload))
		default:
			l.size = s.at
			if want := appendEnd(nil, l.tables.size, l.data.size, l.size); string(want) != string(payload) {
				return layout{}, s.damaged("it has not the bytes that its end tells")
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
