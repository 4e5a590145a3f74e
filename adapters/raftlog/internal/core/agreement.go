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

// agreement compares the checksum of all applied entries (replica.State.History) with the checksums of
// other peers. Once in each election timeout a peer sends its checksums to all members. The protocol
// keeps the histories of all peers equal, so a difference means that a disk or memory was damaged, or
// that files were exchanged. A peer whose history differs from the history of a majority stops.
type agreement struct {
	recent [recentPoints]historyPoint // the checksums of the newest entries, by index
	sparse [sparsePoints]historyPoint // the checksums of every stride-th entry
	peers  map[uint64]*peerHistory
	next   uint64 // the smallest index in peerHistory.waiting of all peers; 0 if no checksum waits
	sentAt time.Duration

	differsAt uint64        // the smallest index at which this peer found a difference; 0 if it found none
	foundAt   time.Duration // when this peer found a difference while it knew of none
	reported  string        // the peers in the last log message about a difference, so that it is not repeated
}

// historyPoint is the checksum of the history up to and including the entry at index.
type historyPoint struct{ index, sum uint64 }

// peerHistory is the result of comparing the history of this peer with the history of one other peer.
type peerHistory struct {
	same    uint64          // the greatest index at which the two checksums were equal
	differs uint64          // the index at which the histories differ; 0 if this peer knows no difference
	waiting [2]historyPoint // received checksums of entries that this peer has not applied yet
}

const (
	recentPoints = 1024
	sparsePoints = 1024
	stride       = 256
	// verdictTimeouts is the number of election timeouts for which a peer that has found a
	// difference waits for the checksums of other peers.
	verdictTimeouts = 2
	historySize     = 4 * 8 // the size in bytes of the body of a frameHistory, which contains two historyPoints
)

func newAgreement(now time.Duration) agreement {
	return agreement{peers: map[uint64]*peerHistory{}, sentAt: now}
}

// recordSum stores the history's checksum at the newest applied entry, and compares it with those checksums of
// other peers that were received before this peer had applied that entry.
func (a *agreement) recordSum(c *Core) {
	p := historyPoint{c.replica.Index, c.replica.History}
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
				k.waiting[i] = historyPoint{}
				a.compareSum(c, id, k, w)
			}
		}
		a.updateNext(k)
	}
}

// updateNext lowers a.next to the smallest index in k.waiting, unless a.next is smaller already.
func (a *agreement) updateNext(k *peerHistory) {
	for _, w := range k.waiting {
		if w.index != 0 && (a.next == 0 || w.index < a.next) {
			a.next = w.index
		}
	}
}

// sumAt returns the checksum of this peer's history at an index. known is false if this peer does not store
// the checksum at that index.
func (a *agreement) sumAt(index uint64) (sum uint64, known bool) {
	if p := a.recent[index%recentPoints]; p.index == index {
		return p.sum, true
	}
	if p := a.sparse[index/stride%sparsePoints]; p.index == index {
		return p.sum, true
	}
	return 0, false
}

// encodeSums encodes two checksums of this peer: the newest one, and the newest in a.sparse. Other peers store
// the checksums in sparse for longer, so that even a peer that has applied far fewer entries can be compared.
func (a *agreement) encodeSums(c *Core) []byte {
	newest := historyPoint{c.replica.Index, c.replica.History}
	older := a.sparse[c.replica.Index/stride%sparsePoints]
	var b []byte
	for _, p := range []historyPoint{newest, older} {
		b = binary.BigEndian.AppendUint64(b, p.index)
		b = binary.BigEndian.AppendUint64(b, p.sum)
	}
	return b
}

// receiveSums compares each checksum that another peer has sent, or stores it until this peer has applied its
// entry.
func (a *agreement) receiveSums(c *Core, from uint64, body []byte) error {
	if len(body) != historySize {
		return fmt.Errorf("%w: the checksums have %d bytes, not %d", errFrame, len(body), historySize)
	}
	if _, member := c.replica.Members.Find(from); !member {
		return nil
	}
	k := a.peers[from]
	if k == nil {
		k = &peerHistory{}
		a.peers[from] = k
	}
	for i := range k.waiting {
		p := historyPoint{binary.BigEndian.Uint64(body[16*i:]), binary.BigEndian.Uint64(body[16*i+8:])}
		switch {
		case p.index == 0:
		case p.index <= c.replica.Index:
			a.compareSum(c, from, k, p)
		case k.waiting[i].index == 0: // do not replace a waiting checksum: a slow peer would never reach its entry
			k.waiting[i] = p
		}
	}
	a.updateNext(k)
	return nil
}

// compareSum compares the checksum p, which the peer from has sent, with this peer's checksum at the same
// index, and records whether the two histories are equal at that index. It does nothing if this peer does not
// store that checksum.
func (a *agreement) compareSum(c *Core, from uint64, k *peerHistory, p historyPoint) {
	sum, known := a.sumAt(p.index)
	switch {
	case !known:
	case sum == p.sum:
		k.same = max(k.same, p.index)
		if k.differs != 0 && k.differs <= p.index {
			k.differs = 0 // the difference was with an earlier process of the peer, which had other data
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

// compareHistories sends the checksums of this peer to all members once in each election timeout. If
// this peer has found a difference, compareHistories decides after a while whether this peer must stop.
func (a *agreement) compareHistories(c *Core, now time.Duration) {
	if c.cfg.Disabled.Has(replica.CheckAgreement) || c.removed != nil {
		return
	}
	if now-a.sentAt >= c.cfg.Election {
		a.sentAt = now
		body := a.encodeSums(c)
		for _, p := range c.replica.Members.All() {
			if p.Raft != c.self {
				c.sendFrame(p.ID, frameHistory, body)
			}
		}
	}
	if a.differsAt != 0 && now-a.foundAt >= verdictTimeouts*c.cfg.Election {
		a.resolveDifference(c)
	}
}

// resolveDifference stops this peer, by a panic with a Fault, unless a majority of the voters has the
// same history as this peer.
func (a *agreement) resolveDifference(c *Core) {
	agree := 0
	var others []string
	for _, p := range c.replica.Members.Voters {
		k := a.peers[p.Raft]
		if p.Raft == c.self || k != nil && k.differs == 0 && k.same >= a.differsAt {
			agree++
		}
	}
	for _, p := range c.replica.Members.All() {
		if k := a.peers[p.Raft]; k != nil && k.differs != 0 {
			others = append(others, p.ID)
		}
	}
	at := a.differsAt
	a.differsAt = 0 // a comparison that finds a difference again sets differsAt again
	if len(others) == 0 {
		return
	}
	slices.Sort(others)
	names := strings.Join(others, ", ")
	if agree*2 <= len(c.replica.Members.Voters) {
		panic(Fault{fmt.Errorf("%w: the entries that this peer has applied through %d are not those of %s: keep its directory to find out why, "+
			"remove %s from the cluster, and let it join with an empty directory under a new ID", api.ErrIdentity, at, names, c.cfg.Self.ID)})
	}
	if a.reported != names {
		a.reported = names
		c.cfg.Logger.Error("peers have applied other entries than a majority: stop them", "peers", others, "index", at)
	}
}
