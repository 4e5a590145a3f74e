package filelog

// How records lie in a segment. All numbers are little-endian; records begin at multiples of
// 8 bytes.
//
//	 0 length of the payload; 0 is the end of the log: the rest is allocated and not written
//	 4 CRC32C of the record before (its own CRC), of bytes 8-12 and 16-32, and of the payload
//	 8 type, and three zeros
//	12 CRC32C of where this is (segment, offset) and of bytes 0-4, 8-12 and 16-32
//	16 number: one more than that of the record before, in all of the log
//	24 number of the last record that was durable when this one was written
//	32 payload
//
// The CRC of the head holds for no other place, and without the rest: whatever has become of
// what is before it, a head tells that it was written here, and what was durable before. Bytes
// from elsewhere, such as an entry's data that are themselves a piece of a log, are no head.
// The other CRC holds only after the record that it was written after.
//
// Payload of a header:  0 version | 4 flags | 8 first index | 16 segment number | 24 hard state,
// 24 bytes | 48 index and term of the compaction mark | 64 checksum of the segment before.
// Payload of a batch:   0 flags | 4 number of entries | 8 index of the first one | hard state
// if it has one | entries: 0 length of the data | 4 CRC32C of the index, of bytes 8-20 and of
// the data | 8 term | 16 type | 17 flags | 20 data.
// Payload of a mark:    0 index | 8 term.

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"go.etcd.io/raft/v3/raftpb"
)

const (
	version = 1

	align      = 8
	headSize   = 32
	headerSize = 72 // payload of a header
	batchSize  = 16 // payload of a batch, without hard state and entries
	stateSize  = 24
	entrySize  = 20 // without the data
	markSize   = 16

	maxPayload = 1 << 30
)

const (
	typeHeader byte = 1 + iota
	typeBatch
	typeMark
)

const (
	hasState = 1 << iota // in a header or a batch: there is a hard state
	isReset              // in a header: what was before this segment does not count
)

// In an entry's flags: which of its fields are set, so that it comes back as it was given.
const (
	noType = 1 << iota
	noTerm
	noData
	flagsEnd
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// place is where the records of a segment belong.
type place struct{ first, seq uint64 }

type head struct {
	length uint32
	crc    uint32
	kind   byte
	number uint64
	synced uint64
}

// seal fills the head of the record in b, whose payload is there, for that offset, and returns
// its CRC.
func (p place) seal(b []byte, off int64, h head, prev uint32) uint32 {
	binary.LittleEndian.PutUint32(b[0:], uint32(len(b)-headSize))
	binary.LittleEndian.PutUint32(b[8:], uint32(h.kind))
	binary.LittleEndian.PutUint64(b[16:], h.number)
	binary.LittleEndian.PutUint64(b[24:], h.synced)
	binary.LittleEndian.PutUint32(b[12:], p.headCRC(b, off))
	crc := recordCRC(b, prev)
	binary.LittleEndian.PutUint32(b[4:], crc)
	return crc
}

func (p place) headCRC(b []byte, off int64) uint32 {
	var s [48]byte
	binary.LittleEndian.PutUint64(s[0:], p.first)
	binary.LittleEndian.PutUint64(s[8:], p.seq)
	binary.LittleEndian.PutUint64(s[16:], uint64(off))
	copy(s[24:28], b[0:4])
	copy(s[28:32], b[8:12])
	copy(s[32:48], b[16:32])
	return crc32.Checksum(s[:], castagnoli)
}

func recordCRC(b []byte, prev uint32) uint32 {
	var s [24]byte
	binary.LittleEndian.PutUint32(s[0:], prev)
	copy(s[4:8], b[8:12])
	copy(s[8:24], b[16:32])
	return crc32.Update(crc32.Checksum(s[:], castagnoli), castagnoli, b[headSize:])
}

// head reads a record's head in b, which was read at off. It is false if none was written there.
func (p place) head(b []byte, off int64) (head, bool) {
	h := head{
		length: binary.LittleEndian.Uint32(b[0:]),
		crc:    binary.LittleEndian.Uint32(b[4:]),
		kind:   b[8],
		number: binary.LittleEndian.Uint64(b[16:]),
		synced: binary.LittleEndian.Uint64(b[24:]),
	}
	if h.length == 0 || binary.LittleEndian.Uint32(b[12:]) != p.headCRC(b, off) {
		return head{}, false
	}
	return h, h.length <= maxPayload && h.synced < h.number
}

// aligned is where the next record begins at the earliest.
func aligned(n int64) int64 { return (n + align - 1) &^ (align - 1) }

// chain goes on with a segment's checksum by one record's CRC.
func chain(sum, crc uint32) uint32 {
	return crc32.Update(sum, castagnoli, binary.LittleEndian.AppendUint32(nil, crc))
}

// state is a hard state; ok if there is one.
type state struct {
	term, vote, commit uint64
	ok                 bool
}

func stateOf(hs *raftpb.HardState) state {
	if hs == nil {
		return state{}
	}
	return state{hs.GetTerm(), hs.GetVote(), hs.GetCommit(), true}
}

func (s state) message() *raftpb.HardState {
	if !s.ok {
		return nil
	}
	return &raftpb.HardState{Term: &s.term, Vote: &s.vote, Commit: &s.commit}
}

func (s state) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, s.term)
	b = binary.LittleEndian.AppendUint64(b, s.vote)
	return binary.LittleEndian.AppendUint64(b, s.commit)
}

func readState(b []byte) state {
	return state{
		binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:]), true,
	}
}

// mark is how far the log was compacted: the last entry that is gone.
type mark struct{ index, term uint64 }

func (m mark) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, m.index)
	return binary.LittleEndian.AppendUint64(b, m.term)
}

func readMark(b []byte) mark {
	return mark{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

// header is what a segment begins with.
type header struct {
	place
	reset bool
	state state
	mark  mark
	chain uint32 // of the segment before
}

func (h header) append(b []byte) []byte {
	var flags uint32
	if h.state.ok {
		flags |= hasState
	}
	if h.reset {
		flags |= isReset
	}
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, flags)
	b = binary.LittleEndian.AppendUint64(b, h.first)
	b = binary.LittleEndian.AppendUint64(b, h.seq)
	b = h.state.append(b)
	b = h.mark.append(b)
	b = binary.LittleEndian.AppendUint32(b, h.chain)
	return append(b, 0, 0, 0, 0)
}

func readHeader(b []byte) (header, error) {
	if len(b) < 4 {
		return header{}, fmt.Errorf("header of %d bytes", len(b))
	}
	if v := binary.LittleEndian.Uint32(b); v != version {
		return header{}, fmt.Errorf("format version %d, which this program does not know (it knows %d)", v, version)
	}
	if len(b) != headerSize {
		return header{}, fmt.Errorf("header of %d bytes", len(b))
	}
	flags := binary.LittleEndian.Uint32(b[4:])
	h := header{
		place: place{binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])},
		reset: flags&isReset != 0,
		mark:  readMark(b[48:]),
		chain: binary.LittleEndian.Uint32(b[64:]),
	}
	if flags&hasState != 0 {
		h.state = readState(b[24:])
	}
	return h, nil
}

// batchLength is the size of a batch's payload.
func batchLength(hs state, entries []*raftpb.Entry) int64 {
	n := int64(batchSize)
	if hs.ok {
		n += stateSize
	}
	for _, e := range entries {
		n += entrySize + int64(len(e.Data))
	}
	return n
}

// appendBatch appends a batch's payload to b, and where in b each entry begins to at.
func appendBatch(b []byte, hs state, entries []*raftpb.Entry, at []uint32) ([]byte, []uint32) {
	var flags uint32
	if hs.ok {
		flags |= hasState
	}
	var first uint64
	if len(entries) > 0 {
		first = entries[0].GetIndex()
	}
	b = binary.LittleEndian.AppendUint32(b, flags)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(entries)))
	b = binary.LittleEndian.AppendUint64(b, first)
	if hs.ok {
		b = hs.append(b)
	}
	for _, e := range entries {
		begin := len(b)
		at = append(at, uint32(begin))
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
		binary.LittleEndian.PutUint32(b[begin+4:], entryCRC(e.GetIndex(), b[begin:]))
	}
	return b, at
}

// entryCRC is of an entry's header and data in b, and begins with the index: an array of its
// own for that would be an allocation.
func entryCRC(index uint64, b []byte) uint32 {
	return crc32.Update(uint32(index)^uint32(index>>32), castagnoli, b[8:])
}

// batch is a batch's payload as it was read; visit goes over its entries.
type batch struct {
	state state
	first uint64
	count int
	rest  []byte
}

func readBatch(b []byte) (batch, error) {
	if len(b) < batchSize {
		return batch{}, fmt.Errorf("batch of %d bytes", len(b))
	}
	flags, count := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	r := batch{first: binary.LittleEndian.Uint64(b[8:]), rest: b[batchSize:]}
	if flags&hasState != 0 {
		if len(r.rest) < stateSize {
			return batch{}, fmt.Errorf("batch of %d bytes has no room for its hard state", len(b))
		}
		r.state, r.rest = readState(r.rest), r.rest[stateSize:]
	}
	if uint64(count)*entrySize > uint64(len(r.rest)) {
		return batch{}, fmt.Errorf("batch of %d bytes has no room for its %d entries", len(b), count)
	}
	r.count = int(count)
	if count > 0 && (r.first == 0 || r.first+uint64(count) < r.first) {
		return batch{}, fmt.Errorf("batch of %d entries begins at index %d", count, r.first)
	}
	return r, nil
}

// visit calls do with each entry: where it begins after the beginning of the entries, its
// header and its data.
func (r batch) visit(do func(at int, raw []byte)) error {
	rest, at := r.rest, 0
	for i := range r.count {
		if len(rest) < entrySize {
			return fmt.Errorf("batch ends in entry %d of %d", i+1, r.count)
		}
		n := entrySize + int64(binary.LittleEndian.Uint32(rest))
		if n > int64(len(rest)) {
			return fmt.Errorf("batch ends in entry %d of %d", i+1, r.count)
		}
		do(at, rest[:n])
		rest, at = rest[n:], at+int(n)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%d bytes follow the batch's last entry", len(rest))
	}
	return nil
}

func rawTerm(raw []byte) uint64 { return binary.LittleEndian.Uint64(raw[8:]) }

// decoded is an entry and what it points to, in one piece of memory.
type decoded struct {
	entry raftpb.Entry
	term  uint64
	index uint64
	kind  raftpb.EntryType
}

// decode fills d with the entry in raw, whose data d keeps.
func (d *decoded) decode(index uint64, raw []byte) error {
	flags := raw[17]
	if binary.LittleEndian.Uint32(raw[4:]) != entryCRC(index, raw) || flags >= flagsEnd {
		return fmt.Errorf("checksum of entry %d does not fit", index)
	}
	d.index, d.term, d.kind = index, rawTerm(raw), raftpb.EntryType(raw[16])
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
