package core

import (
	"encoding/binary"
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// lease is the time until which the candidates of this peer may lead, if they are the heads of their
// queues. It also serves linearizable reads.
//
// A peer obtains a lease by requests to the leader of the log. The leader replies with its commit index
// when a majority has confirmed its leadership after the request (the engine's ReadIndex). A peer that
// has applied the entries up to this index knows everything that was committed at the time t of the
// request.
//
// Invariant: no leader removes the candidates of the peer from their queues before t + Election.
//
//   - The leader that has replied waits for Election after the last request of a peer (expiry.go). So
//     does every later leader, from the start of its term. That start is later than t, because one of
//     the later leader's voters has confirmed the former leader after t.
//   - A leader removes the candidates of its predecessor without waiting. The predecessor has confirmed
//     its lease itself: each peer of the majority that has confirmed it at t or later does not vote for
//     another peer for Election (the engine's CheckQuorum, and holdsVote), and the predecessor itself
//     discards its lease when it is not the leader any more. There are two exceptions:
//     expireFormerLeader excludes leaders that were elected by a hand-over, and updateRole discards a
//     lease that another leader has granted before this peer's own term.
//   - An ended election is not restarted before t + Election (mayRestart).
//
// The lease is shorter than Election by one tick, because voters measure Election in ticks, and by one
// hundredth of Election, because the clocks of two peers can run at different rates.
type lease struct {
	length   time.Duration
	until    time.Duration // when the lease expires; 0 if this peer has no lease
	nonce    uint64        // a random number, by which this process ignores replies to an earlier process
	seq      uint64        // the number of the last lease request
	requests map[uint64]leaseRequest
	granted  []grant // the replies whose index this peer has not applied yet
	readers  []reader
}

// leaseRequest describes a lease request of this peer that has no reply yet: when it was sent, and in
// which term.
type leaseRequest struct {
	at   time.Duration
	term uint64
}

// grant is what a reply to a lease request grants: a lease in the given term, until the given time. It
// becomes valid when this peer has applied the entry with the given index.
type grant struct {
	index uint64
	until time.Duration
	term  uint64
}

// reader is a call of Read or ReadReplica that waits until this peer has applied everything that was
// committed before the call.
type reader struct {
	token       uint64
	replicaOnly bool   // whether the reader waits only for the replica, and not for the state machine
	after       uint64 // the number of the last lease request before the call; the reader needs the reply to a later one
	index       uint64 // the index that the reader waits for; 0 until a leader has replied
	deadline    time.Duration
}

// maxLeaseRequests is the maximum number of lease requests in flight. If there are more, this peer
// forgets the oldest one.
const maxLeaseRequests = 64

func newLease(cfg Config) lease {
	return lease{length: (cfg.Election - cfg.Tick) * 99 / 100, nonce: cfg.Random(), requests: map[uint64]leaseRequest{}}
}

// discardLease ends the lease, and makes this peer ignore replies to the lease requests that it has
// sent before.
func (l *lease) discardLease() {
	l.until = 0
	l.granted = nil
	clear(l.requests)
}

// requestLease sends a lease request, if this peer knows a leader and can use a lease.
func (l *lease) requestLease(c *Core, now time.Duration) {
	if c.lead == raft.None || c.state == raft.StateLeader && !c.proposals.ready {
		return
	}
	if c.backlog.dropsAppends(c) || c.stall.stalled {
		return
	}
	l.seq++
	delete(l.requests, l.seq-maxLeaseRequests)
	l.requests[l.seq] = leaseRequest{now, c.term}
	ctx := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, l.nonce), l.seq)
	c.rn.ReadIndex(ctx)
}

// receiveReadStates handles the leader's replies to lease requests, which the engine returns as
// ReadStates.
func (l *lease) receiveReadStates(c *Core, states []raft.ReadState) {
	for _, s := range states {
		if len(s.RequestCtx) != 16 || binary.BigEndian.Uint64(s.RequestCtx) != l.nonce {
			continue
		}
		seq := binary.BigEndian.Uint64(s.RequestCtx[8:])
		request, found := l.requests[seq]
		if !found || request.term != c.term {
			continue
		}
		delete(l.requests, seq)
		c.stall.confirmed = max(c.stall.confirmed, s.Index)
		l.granted = append(l.granted, grant{s.Index, request.at + l.length, c.term})
		for i, r := range l.readers {
			if r.index == 0 && seq > r.after {
				l.readers[i].index = s.Index
			}
		}
	}
	if len(states) > 0 {
		l.applyGrants(c)
		l.requestForReaders(c)
	}
}

// applyGrants extends the lease by each grant whose index this peer has applied, unless the machine was
// suspended since the request.
func (l *lease) applyGrants(c *Core) {
	if len(l.granted) > 0 {
		c.detectSuspend(c.now())
	}
	kept := l.granted[:0]
	for _, g := range l.granted {
		if g.index > c.replica.Index {
			kept = append(kept, g)
		} else {
			l.until = max(l.until, g.until)
		}
	}
	l.granted = kept
	l.answerReaders(c)
}

// answerReaders replies to the readers whose index this peer has applied.
func (l *lease) answerReaders(c *Core) {
	kept := l.readers[:0]
	for _, r := range l.readers {
		applied := c.applied
		if r.replicaOnly {
			applied = c.replica.Index
		}
		if r.index == 0 || r.index > applied {
			kept = append(kept, r)
			continue
		}
		c.output.Replies = append(c.output.Replies, Reply{Token: r.token, Index: r.index})
	}
	l.readers = kept
}

// Read replies when the state machine has applied everything that was committed at any peer before this
// call. The error of the reply is api.ErrBusy after the deadline, and api.ErrRefused at a peer that the
// cluster has removed, to which no leader replies. With ErrBusy, the reply contains the index that the
// state machine still has to apply, or 0 if this peer does not know the index yet. A call with a
// non-zero index waits only until that index is applied.
func (c *Core) Read(token, index uint64, deadline time.Duration) {
	c.addReader(reader{token: token, index: index, deadline: deadline})
}

// ReadReplica is like Read, but it waits until [Core.Replica], and not the state machine, has applied
// the entries.
func (c *Core) ReadReplica(token, index uint64, deadline time.Duration) {
	c.addReader(reader{token: token, replicaOnly: true, index: index, deadline: deadline})
}

// addReader makes r wait for the reply to a lease request that is sent after this call, or only for
// r.index if r.index is not 0.
func (c *Core) addReader(r reader) {
	defer containPanic()
	l := &c.lease
	if c.removed != nil {
		c.output.Replies = append(c.output.Replies, Reply{Token: r.token, Err: c.removedError()})
		return
	}
	r.after = l.seq
	l.readers = append(l.readers, r)
	if r.index != 0 {
		l.answerReaders(c)
		return
	}
	l.requestForReaders(c)
}

// requestForReaders sends a lease request if readers wait for a newer request than the last one. While a
// request is in flight, new readers wait for its reply, and then share the next request. If a request is lost,
// the readers share the request of the next heartbeat, or the request that a new reader causes at least a tick
// after the lost request.
func (l *lease) requestForReaders(c *Core) {
	now := c.now()
	if newest, found := l.requests[l.seq]; found && now-newest.at < c.cfg.Tick {
		return
	}
	if slices.ContainsFunc(l.readers, func(r reader) bool { return r.index == 0 && r.after == l.seq }) {
		l.requestLease(c, now)
	}
}

// failOverdueReaders replies with an error to the readers whose deadline has passed.
func (l *lease) failOverdueReaders(c *Core, now time.Duration) {
	kept := l.readers[:0]
	for _, r := range l.readers {
		if now < r.deadline {
			kept = append(kept, r)
			continue
		}
		c.output.Replies = append(c.output.Replies, Reply{Token: r.token, Index: r.index, Err: api.ErrBusy})
	}
	l.readers = kept
}
