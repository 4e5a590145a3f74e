package core

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// agreement compares the checksum of all applied entries (replica.State.History) with those of
// the other peers. Once in an election timeout a peer sends its own to all members. If histories
// differ, something has gone wrong that the protocol excludes: a disk or a memory was damaged, or
// somebody has exchanged files. A peer whose history is not that of a majority stops then.
type agreement struct {
	recent [recentPoints]point // of the newest entries, by index
	sparse [sparsePoints]point // of every stride-th entry
	peers  map[uint64]*compared
	next   uint64 // the smallest index in waiting of all peers; 0 without any
	sentAt time.Duration

	differsAt uint64        // the smallest index at which a difference was found; 0 for none
	foundAt   time.Duration // when the first difference was found
	reported  string
}

// point is the checksum of the history through an entry.
type point struct{ index, sum uint64 }

// compared is the result of the comparison with one peer.
type compared struct {
	same    uint64   // the histories are equal through this index
	differs uint64   // they differ at this index; 0 if no difference is known
	waiting [2]point // of entries that this peer has not applied yet
}

const (
	recentPoints = 1024
	sparsePoints = 1024
	stride       = 256
	// verdictTimeouts is for how many election timeouts a peer that has found a difference waits
	// for the checksums of the others.
	verdictTimeouts = 2
	historySize     = 4 * 8 // of a frame's body: two points
)

func (a *agreement) init(c *Core) {
	a.peers = map[uint64]*compared{}
	a.sentAt = c.started
	a.applied(c)
}

// applied notes the checksum at the entry that was just applied, or at a snapshot.
func (a *agreement) applied(c *Core) {
	p := point{c.tables.Index, c.tables.History}
	a.recent[p.index%recentPoints] = p
	if p.index%stride == 0 {
		a.sparse[p.index/stride%sparsePoints] = p
	}
	if a.next == 0 || p.index < a.next {
		return
	}
	a.next = 0
	for id, k := range a.peers {
		for i, w := range k.waiting {
			if w.index != 0 && w.index <= p.index {
				k.waiting[i] = point{}
				a.compare(c, id, k, w)
			}
		}
		a.await(k)
	}
}

// await updates a.next with the indexes that one peer waits for.
func (a *agreement) await(k *compared) {
	for _, w := range k.waiting {
		if w.index != 0 && (a.next == 0 || w.index < a.next) {
			a.next = w.index
		}
	}
}

// at is the checksum at an index, if it is remembered.
func (a *agreement) at(index uint64) (sum uint64, known bool) {
	if p := a.recent[index%recentPoints]; p.index == index {
		return p.sum, true
	}
	if p := a.sparse[index/stride%sparsePoints]; p.index == index {
		return p.sum, true
	}
	return 0, false
}

// body encodes the newest checksum, and the newest one of the sparse ones, which others keep longer.
func (a *agreement) body(c *Core) []byte {
	newest := point{c.tables.Index, c.tables.History}
	older := a.sparse[c.tables.Index/stride%sparsePoints]
	var b []byte
	for _, p := range []point{newest, older} {
		b = binary.BigEndian.AppendUint64(b, p.index)
		b = binary.BigEndian.AppendUint64(b, p.sum)
	}
	return b
}

// received takes the checksums of another peer.
func (a *agreement) received(c *Core, from uint64, body []byte) error {
	if len(body) != historySize {
		return fmt.Errorf("%w: checksums of %d bytes", errFrame, len(body))
	}
	if _, member := c.tables.Members.Find(from); !member {
		return nil
	}
	k := a.peers[from]
	if k == nil {
		k = &compared{}
		a.peers[from] = k
	}
	for i := range k.waiting {
		p := point{binary.BigEndian.Uint64(body[16*i:]), binary.BigEndian.Uint64(body[16*i+8:])}
		switch {
		case p.index == 0:
		case p.index <= c.tables.Index:
			a.compare(c, from, k, p)
		case k.waiting[i].index == 0: // a waiting checksum is not replaced, so that a peer that is always behind compares it
			k.waiting[i] = p
		}
	}
	a.await(k)
	return nil
}

func (a *agreement) compare(c *Core, from uint64, k *compared, p point) {
	sum, known := a.at(p.index)
	switch {
	case !known:
	case sum == p.sum:
		k.same = max(k.same, p.index)
		if k.differs != 0 && k.differs <= p.index {
			k.differs = 0 // the difference was that of an earlier process with other data
		}
	default:
		if k.differs == 0 || p.index < k.differs {
			k.differs = p.index
		}
		if a.differsAt == 0 {
			a.foundAt = c.now()
		}
		if a.differsAt == 0 || p.index < a.differsAt {
			a.differsAt = p.index
		}
	}
}

// check sends the checksums once in an election timeout, and decides about differences.
func (a *agreement) check(c *Core, now time.Duration) {
	if c.cfg.Disabled.Has(replica.CheckAgreement) || c.contact.removed != nil {
		return
	}
	if now-a.sentAt >= c.cfg.Election {
		a.sentAt = now
		body := a.body(c)
		for _, p := range c.tables.Members.All() {
			if p.Raft != c.self {
				c.sendFrame(p.ID, frameHistory, body)
			}
		}
	}
	if a.differsAt != 0 && now-a.foundAt >= verdictTimeouts*c.cfg.Election {
		a.decide(c)
	}
}

// decide stops this peer unless its history is that of a majority of the voters.
func (a *agreement) decide(c *Core) {
	agree := 0
	var others []string
	for _, p := range c.tables.Members.Voters {
		k := a.peers[p.Raft]
		if p.Raft == c.self || k != nil && k.differs == 0 && k.same >= a.differsAt {
			agree++
		}
	}
	for _, p := range c.tables.Members.All() {
		if k := a.peers[p.Raft]; k != nil && k.differs != 0 {
			others = append(others, p.ID)
		}
	}
	at := a.differsAt
	a.differsAt = 0 // set again by the next comparison that fails
	if len(others) == 0 {
		return
	}
	slices.Sort(others)
	names := strings.Join(others, ", ")
	if agree*2 <= len(c.tables.Members.Voters) {
		panic(Fault{fmt.Errorf("%w: the entries that this peer has applied through %d are not those of %s: keep its directory to find out why, "+
			"remove %s from the cluster, and let it join with an empty directory under a new ID", api.ErrIdentity, at, names, c.cfg.Self.ID)})
	}
	if a.reported != names {
		a.reported = names
		c.cfg.Logger.Error("peers have applied other entries than a majority: stop them", "peers", others, "index", at)
	}
}
