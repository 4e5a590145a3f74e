package filelog

// The newest entries in memory: those that followers want, and that are about to be applied.

import (
	"encoding/binary"
	"math/bits"

	"go.etcd.io/raft/v3/raftpb"
)

// cache holds entries of consecutive indexes, up to the log's last.
type cache struct {
	entries []*raftpb.Entry
	bytes   int64
	limit   int64
}

// perEntry is about what an entry takes besides its data.
const perEntry = 128

func cost(e *raftpb.Entry) int64 { return perEntry + int64(len(e.Data)) }

// get returns the entries from lo to hi-1 in new memory, or nil if lo is not here.
func (c *cache) get(lo, hi uint64) []*raftpb.Entry {
	if len(c.entries) == 0 || lo < c.entries[0].GetIndex() {
		return nil
	}
	first := c.entries[0].GetIndex()
	return append([]*raftpb.Entry(nil), c.entries[lo-first:hi-first]...)
}

// put adds entries, in place of those from the first one's index on.
func (c *cache) put(entries []*raftpb.Entry) {
	c.cut(entries[0].GetIndex())
	for _, e := range entries {
		c.entries = append(c.entries, e)
		c.bytes += cost(e)
	}
	n := 0
	for n < len(c.entries) && c.bytes > c.limit {
		c.bytes -= cost(c.entries[n])
		c.entries[n] = nil
		n++
	}
	c.entries = c.entries[n:]
}

func (c *cache) cut(index uint64) {
	for len(c.entries) > 0 && c.entries[len(c.entries)-1].GetIndex() >= index {
		last := len(c.entries) - 1
		c.bytes -= cost(c.entries[last])
		c.entries[last] = nil
		c.entries = c.entries[:last]
	}
}

// drop forgets the entries through index.
func (c *cache) drop(index uint64) {
	n := 0
	for n < len(c.entries) && c.entries[n].GetIndex() <= index {
		c.bytes -= cost(c.entries[n])
		c.entries[n] = nil
		n++
	}
	c.entries = c.entries[n:]
}

// encodedSize is what proto.Size says of an entry, without its reflection.
func encodedSize(e *raftpb.Entry) uint64 {
	n := 0
	if e.Type != nil {
		n += 1 + varint(uint64(*e.Type))
	}
	if e.Term != nil {
		n += 1 + varint(*e.Term)
	}
	if e.Index != nil {
		n += 1 + varint(*e.Index)
	}
	if e.Data != nil {
		n += 1 + varint(uint64(len(e.Data))) + len(e.Data)
	}
	return uint64(n)
}

func varint(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// entryLength is an entry's length with its header, in the log.
func entryLength(raw []byte) (int64, bool) {
	if len(raw) < entrySize {
		return 0, false
	}
	return entrySize + int64(binary.LittleEndian.Uint32(raw)), true
}
