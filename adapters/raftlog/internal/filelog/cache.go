package filelog

import (
	"math/bits"

	"go.etcd.io/raft/v3/raftpb"
)

// cache contains the newest entries of a log in memory, because these are applied and sent to followers
// next. The indexes of the entries are consecutive, up to the last index of the log.
type cache struct {
	entries []*raftpb.Entry
	bytes   int64
	limit   int64
}

// entryOverhead is an estimate of the memory, in bytes, that an entry uses in addition to its data.
const entryOverhead = 128

func memorySize(e *raftpb.Entry) int64 { return entryOverhead + int64(len(e.Data)) }

// get returns the entries from lo to hi-1 in a new slice, or nil if the cache does not contain entry
// lo.
func (c *cache) get(lo, hi uint64) []*raftpb.Entry {
	if len(c.entries) == 0 || lo < c.entries[0].GetIndex() {
		return nil
	}
	first := c.entries[0].GetIndex()
	return append([]*raftpb.Entry(nil), c.entries[lo-first:hi-first]...)
}

// addEntries adds entries to the cache. They replace the cached entries from the index of the first added
// entry on. If the cache then exceeds its limit, addEntries removes the oldest entries.
func (c *cache) addEntries(entries []*raftpb.Entry) {
	c.truncate(entries[0].GetIndex())
	for _, e := range entries {
		c.entries = append(c.entries, e)
		c.bytes += memorySize(e)
	}
	n := 0
	for n < len(c.entries) && c.bytes > c.limit {
		c.bytes -= memorySize(c.entries[n])
		c.entries[n] = nil
		n++
	}
	c.entries = c.entries[n:]
}

// truncate removes the entries with the given index and all later ones.
func (c *cache) truncate(index uint64) {
	for len(c.entries) > 0 && c.entries[len(c.entries)-1].GetIndex() >= index {
		last := len(c.entries) - 1
		c.bytes -= memorySize(c.entries[last])
		c.entries[last] = nil
		c.entries = c.entries[:last]
	}
}

// dropThrough removes the entries up to and including index.
func (c *cache) dropThrough(index uint64) {
	n := 0
	for n < len(c.entries) && c.entries[n].GetIndex() <= index {
		c.bytes -= memorySize(c.entries[n])
		c.entries[n] = nil
		n++
	}
	c.entries = c.entries[n:]
}

// encodedSize returns the same size as proto.Size, but does not use reflection.
func encodedSize(e *raftpb.Entry) uint64 {
	n := 0
	if e.Type != nil {
		n += 1 + varintSize(uint64(*e.Type))
	}
	if e.Term != nil {
		n += 1 + varintSize(*e.Term)
	}
	if e.Index != nil {
		n += 1 + varintSize(*e.Index)
	}
	if e.Data != nil {
		n += 1 + varintSize(uint64(len(e.Data))) + len(e.Data)
	}
	return uint64(n)
}

func varintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
