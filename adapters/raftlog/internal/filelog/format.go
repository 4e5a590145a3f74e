package filelog

// The format of segments. All numbers are little-endian. Records begin at multiples of 8 bytes.
//
//	 0 length of the payload; 0 marks the end: the rest is allocated and not written
//	 4 CRC32C of the previous record's value of this field, of bytes 8-12 and 16-32, and of the
//	   payload
//	 8 type, and three zeros
//	12 CRC32C of the position (segment and offset) and of bytes 0-4, 8-12 and 16-32
//	16 number: one more than that of the previous record of the log
//	24 number of the last record that was durable when this record was written
//	32 payload
//
// The checksum at 12, that of the head, is valid only at this position, and does not depend on
// other bytes. So a head proves that it was written here, and which records were durable before,
// even if the records before it are damaged. Bytes from elsewhere, such as an entry whose data is
// a part of a log, are not accepted as a head. The checksum at 4 is valid only after the same
// previous record.
//
// Payload of a header:  0 version | 4 flags | 8 first index | 16 segment number | 24 hard state,
// 24 bytes | 48 index and term of the compaction mark | 64 checksum of the previous segment.
// Payload of a batch:   0 flags | 4 number of entries | 8 index of the first one | hard state
// if it has one | entries: 0 length of the data | 4 CRC32C of the index, of bytes 8-20 and of
// the data | 8 term | 16 type | 17 flags | 20 data.
// Payload of a mark:    0 index | 8 term.

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"go.etcd.io/raft/v3/raftpb"
)

const (
	formatVersion = 1

	alignment  = 8
	headSize   = 32 // the size of the head of a record
	headerSize = 72 // the size of the payload of a segment header
	batchSize  = 16 // the size of a batch without the hard state and the entries
	stateSize  = 24 // the size of a hard state
	entrySize  = 20 // the size of an entry without its data
	markSize   = 16 // the size of the payload of a compaction mark

	maxPayload = 1 << 30
)

// These are the types of the records in a segment.
const (
	typeHeader byte = 1 + iota
	typeBatch
	typeMark
)

// These are the flags of segment headers and of batches.
const (
	hasState = 1 << iota // the header or the batch contains a hard state
	isReset              // the header begins a new log; earlier segments do not belong to it
)

// These flags of an entry say which fields of the protobuf message are nil, so that decoding restores
// the message exactly.
const (
	noType = 1 << iota
	noTerm
	noData
	flagsEnd
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Suffix is the suffix of the file names of segments.
const Suffix = ".seg"

// segmentID identifies a segment by the index of its first entry and by its number. The numbers of the
// segments of a log are consecutive.
type segmentID struct{ first, number uint64 }

func (id segmentID) fileName() string {
	return fmt.Sprintf("%016x-%08x%s", id.first, id.number, Suffix)
}

// parseFileName returns the segmentID that a file name contains. It returns false if name is not the
// name of a segment.
func parseFileName(name string) (segmentID, bool) {
	first, number, ok := strings.Cut(strings.TrimSuffix(name, Suffix), "-")
	f, err1 := strconv.ParseUint(first, 16, 64)
	n, err2 := strconv.ParseUint(number, 16, 64)
	id := segmentID{f, n}
	return id, ok && err1 == nil && err2 == nil && id.fileName() == name
}

// recordHead is the part of each record that precedes the payload.
type recordHead struct {
	length  uint32 // the length of the payload
	crc     uint32 // the checksum of the record, which depends on the previous record's checksum
	kind    byte
	number  uint64
	durable uint64 // the number of the last record that was durable when this record was written
}

// sealRecord writes the head of a record to the beginning of b, which already contains the payload after the
// head and will be written at the given offset. previous is the checksum of the record before. sealRecord
// returns the checksum of the new record.
func (id segmentID) sealRecord(b []byte, offset int64, h recordHead, previous uint32) uint32 {
	binary.LittleEndian.PutUint32(b[0:], uint32(len(b)-headSize))
	binary.LittleEndian.PutUint32(b[8:], uint32(h.kind))
	binary.LittleEndian.PutUint64(b[16:], h.number)
	binary.LittleEndian.PutUint64(b[24:], h.durable)
	binary.LittleEndian.PutUint32(b[12:], id.headChecksum(b, offset))
	crc := recordChecksum(b, previous)
	binary.LittleEndian.PutUint32(b[4:], crc)
	return crc
}

// headChecksum returns the checksum of the head of the record in b. The checksum depends on the segment and the
// offset, so that a head at a wrong position is detected.
func (id segmentID) headChecksum(b []byte, offset int64) uint32 {
	var s [48]byte
	binary.LittleEndian.PutUint64(s[0:], id.first)
	binary.LittleEndian.PutUint64(s[8:], id.number)
	binary.LittleEndian.PutUint64(s[16:], uint64(offset))
	copy(s[24:28], b[0:4])
	copy(s[28:32], b[8:12])
	copy(s[32:48], b[16:32])
	return crc32.Checksum(s[:], castagnoli)
}

// recordChecksum returns the checksum of the record in b. It depends on the checksum of the previous record,
// so that a missing record is detected.
func recordChecksum(b []byte, previous uint32) uint32 {
	var s [24]byte
	binary.LittleEndian.PutUint32(s[0:], previous)
	copy(s[4:8], b[8:12])
	copy(s[8:24], b[16:32])
	return crc32.Update(crc32.Checksum(s[:], castagnoli), castagnoli, b[headSize:])
}

// decodeHead decodes the head of a record in b, which was read at the given offset. It returns false if
// b is not a head that was written at that offset.
func (id segmentID) decodeHead(b []byte, offset int64) (recordHead, bool) {
	h := recordHead{
		length:  binary.LittleEndian.Uint32(b[0:]),
		crc:     binary.LittleEndian.Uint32(b[4:]),
		kind:    b[8],
		number:  binary.LittleEndian.Uint64(b[16:]),
		durable: binary.LittleEndian.Uint64(b[24:]),
	}
	if h.length == 0 || binary.LittleEndian.Uint32(b[12:]) != id.headChecksum(b, offset) {
		return recordHead{}, false
	}
	return h, h.length <= maxPayload && h.durable < h.number
}

// alignUp rounds n up to the next offset at which a record can begin.
func alignUp(n int64) int64 { return (n + alignment - 1) &^ (alignment - 1) }

// extendChecksum returns the checksum sum of a segment's records, extended by the checksum of the next
// record.
func extendChecksum(sum, crc uint32) uint32 {
	return crc32.Update(sum, castagnoli, binary.LittleEndian.AppendUint32(nil, crc))
}

// hardState is a Raft hard state, or the absence of one.
type hardState struct {
	term, vote, commit uint64
	exists             bool
}

func hardStateOf(hs *raftpb.HardState) hardState {
	if hs == nil {
		return hardState{}
	}
	return hardState{hs.GetTerm(), hs.GetVote(), hs.GetCommit(), true}
}

func (s hardState) message() *raftpb.HardState {
	if !s.exists {
		return nil
	}
	return &raftpb.HardState{Term: &s.term, Vote: &s.vote, Commit: &s.commit}
}

// raiseCommit sets the commit index to commit, unless the index is higher already.
func (s *hardState) raiseCommit(commit uint64) {
	if s.exists {
		s.commit = max(s.commit, commit)
	}
}

func (s hardState) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, s.term)
	b = binary.LittleEndian.AppendUint64(b, s.vote)
	return binary.LittleEndian.AppendUint64(b, s.commit)
}

func decodeHardState(b []byte) hardState {
	return hardState{
		binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:]), true,
	}
}

// mark is a compaction mark, which consists of the index and the term of the last compacted entry.
type mark struct{ index, term uint64 }

func (m mark) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, m.index)
	return binary.LittleEndian.AppendUint64(b, m.term)
}

func decodeMark(b []byte) (mark, error) {
	if len(b) != markSize {
		return mark{}, fmt.Errorf("a compaction mark cannot have %d bytes", len(b))
	}
	return mark{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}, nil
}

// segmentHeader is the payload of the first record of a segment, which repeats the state of the log at that
// time.
type segmentHeader struct {
	id    segmentID
	reset bool // whether earlier segments do not belong to the log any more
	state hardState
	mark  mark
	chain uint32 // the checksum of all records of the previous segment
}

func (h segmentHeader) appendTo(b []byte) []byte {
	var flags uint32
	if h.state.exists {
		flags |= hasState
	}
	if h.reset {
		flags |= isReset
	}
	b = binary.LittleEndian.AppendUint32(b, formatVersion)
	b = binary.LittleEndian.AppendUint32(b, flags)
	b = binary.LittleEndian.AppendUint64(b, h.id.first)
	b = binary.LittleEndian.AppendUint64(b, h.id.number)
	b = h.state.appendTo(b)
	b = h.mark.appendTo(b)
	b = binary.LittleEndian.AppendUint32(b, h.chain)
	return append(b, 0, 0, 0, 0)
}

func decodeSegmentHeader(b []byte) (segmentHeader, error) {
	if len(b) < 4 {
		return segmentHeader{}, fmt.Errorf("a header cannot have %d bytes", len(b))
	}
	if v := binary.LittleEndian.Uint32(b); v != formatVersion {
		return segmentHeader{}, fmt.Errorf("format version %d, which this program does not know (it knows %d)", v, formatVersion)
	}
	if len(b) != headerSize {
		return segmentHeader{}, fmt.Errorf("a header cannot have %d bytes", len(b))
	}
	flags := binary.LittleEndian.Uint32(b[4:])
	h := segmentHeader{
		id:    segmentID{binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])},
		reset: flags&isReset != 0,
		mark:  mark{binary.LittleEndian.Uint64(b[48:]), binary.LittleEndian.Uint64(b[56:])},
		chain: binary.LittleEndian.Uint32(b[64:]),
	}
	if flags&hasState != 0 {
		h.state = decodeHardState(b[24:])
	}
	return h, nil
}

// batchLength returns the size in bytes of the payload of a batch with the given content.
func batchLength(hs hardState, entries []*raftpb.Entry) int64 {
	n := int64(batchSize)
	if hs.exists {
		n += stateSize
	}
	for _, e := range entries {
		n += entrySize + int64(len(e.Data))
	}
	return n
}

// appendBatch appends the payload of a batch to b. It appends the position in b of each entry to
// offsets.
func appendBatch(b []byte, hs hardState, entries []*raftpb.Entry, offsets []uint32) ([]byte, []uint32) {
	var flags uint32
	if hs.exists {
		flags |= hasState
	}
	var first uint64
	if len(entries) > 0 {
		first = entries[0].GetIndex()
	}
	b = binary.LittleEndian.AppendUint32(b, flags)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(entries)))
	b = binary.LittleEndian.AppendUint64(b, first)
	if hs.exists {
		b = hs.appendTo(b)
	}
	for _, e := range entries {
		start := len(b)
		offsets = append(offsets, uint32(start))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Data)))
		b = append(b, 0, 0, 0, 0)
		b = binary.LittleEndian.AppendUint64(b, e.GetTerm())
		var flags byte
		if e.Type == nil {
			flags |= noType
		}
		if e.Term == nil {
			flags |= noTerm
		}
		if e.Data == nil {
			flags |= noData
		}
		b = append(b, byte(e.GetType()), flags, 0, 0)
		b = append(b, e.Data...)
		binary.LittleEndian.PutUint32(b[start+4:], entryChecksum(e.GetIndex(), b[start:]))
	}
	return b, offsets
}

// entryChecksum returns the checksum of an encoded entry and its index. It passes the index as the initial
// value of the checksum and not as bytes, because an array for the bytes would have to be allocated.
func entryChecksum(index uint64, raw []byte) uint32 {
	return crc32.Update(uint32(index)^uint32(index>>32), castagnoli, raw[8:])
}

// batch is a decoded batch, whose entries are still encoded. visitEntries splits them.
type batch struct {
	state   hardState
	first   uint64 // the index of the first entry
	count   int    // the number of entries in the batch
	entries []byte
}

func decodeBatch(b []byte) (batch, error) {
	if len(b) < batchSize {
		return batch{}, fmt.Errorf("a batch cannot have %d bytes", len(b))
	}
	flags, count := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	r := batch{first: binary.LittleEndian.Uint64(b[8:]), entries: b[batchSize:]}
	if flags&hasState != 0 {
		if len(r.entries) < stateSize {
			return batch{}, fmt.Errorf("batch of %d bytes has no space for its hard state", len(b))
		}
		r.state, r.entries = decodeHardState(r.entries), r.entries[stateSize:]
	}
	if uint64(count)*entrySize > uint64(len(r.entries)) {
		return batch{}, fmt.Errorf("batch of %d bytes has no space for its %d entries", len(b), count)
	}
	r.count = int(count)
	if count > 0 && (r.first == 0 || r.first+uint64(count) < r.first) {
		return batch{}, fmt.Errorf("a batch of %d entries cannot begin at index %d", count, r.first)
	}
	return r, nil
}

// visitEntries calls visit with each encoded entry, the entry's index, and its offset in b.entries.
func (b batch) visitEntries(visit func(index uint64, offset int, raw []byte)) error {
	rest, offset := b.entries, 0
	for i := range b.count {
		n, ok := entryLength(rest)
		if !ok || n > int64(len(rest)) {
			return fmt.Errorf("the batch ends within entry %d of %d", i+1, b.count)
		}
		visit(b.first+uint64(i), offset, rest[:n])
		rest, offset = rest[n:], offset+int(n)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%d bytes follow the batch's last entry", len(rest))
	}
	return nil
}

// entryLength returns the length of the encoded entry at the beginning of b. It returns false if b is
// too short to contain that length.
func entryLength(b []byte) (int64, bool) {
	if len(b) < entrySize {
		return 0, false
	}
	return entrySize + int64(binary.LittleEndian.Uint32(b)), true
}

func entryTerm(raw []byte) uint64 { return binary.LittleEndian.Uint64(raw[8:]) }

func entryType(raw []byte) raftpb.EntryType { return raftpb.EntryType(raw[16]) }

// decodedEntry contains an entry and the values that the entry points to, so that a single allocation
// suffices.
type decodedEntry struct {
	entry raftpb.Entry
	term  uint64
	index uint64
	kind  raftpb.EntryType
}

// decode sets d to the entry that raw encodes. The data of the entry refers to the memory of raw.
func (d *decodedEntry) decode(index uint64, raw []byte) error {
	flags := raw[17]
	if binary.LittleEndian.Uint32(raw[4:]) != entryChecksum(index, raw) || flags >= flagsEnd {
		return fmt.Errorf("checksum of entry %d does not match", index)
	}
	d.index, d.term, d.kind = index, entryTerm(raw), entryType(raw)
	d.entry.Index = &d.index
	if flags&noTerm == 0 {
		d.entry.Term = &d.term
	}
	if flags&noType == 0 {
		d.entry.Type = &d.kind
	}
	if flags&noData == 0 {
		d.entry.Data = raw[entrySize:len(raw):len(raw)]
	}
	return nil
}
