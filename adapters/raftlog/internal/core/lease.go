package core

import (
	"encoding/binary"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// lease is for how long the candidates of this peer may lead, if they are the first.
//
// It stands on questions to the raft leader, which a leader answers when a majority has
// confirmed it since (the engine's ReadIndex). Whoever has asked at a time t and was answered
// knows of all that was committed by t, once it has applied through the index in the answer;
// and nobody takes its candidates out of their lines before t + Election:
//
//   - The leader that answered waits that long after it has heard a peer (expiry.go), and so
//     does every later leader, from its own beginning, which is later than t, since one of
//     its voters has confirmed the older one after t.
//   - A leader takes those of the leader before it out at once, which asked by itself: each of
//     a majority that has confirmed it at t or later votes for nobody else for an election
//     timeout (the engine's CheckQuorum; and see held), but for the leader itself, which gives
//     its lease up when it leads no more. This does not hold for leaders that
//     were elected because the one before has asked for that, and not for the answers that
//     this peer has got from another leader before its own term: turn gives those up.
//   - An election that was ended is not begun again before (expiry.mayRestart).
//
// The lease is shorter than that by one tick, since voters count ticks, and by one hundredth,
// by which clocks may differ in rate.
type lease struct {
	length  time.Duration
	until   time.Duration
	nonce   uint64
	seq     uint64
	asked   map[uint64]question
	granted []grant // whose index is not applied yet
	readers []reader
}

type question struct {
	at   time.Duration
	term uint64
}

type grant struct {
	index uint64
	until time.Duration
	term  uint64
}

// reader waits for all that was committed before it came.
type reader struct {
	token    uint64
	tables   bool   // these are enough
	after    uint64 // questions with a greater number count
	index    uint64 // what has to be applied; 0 for not known yet
	deadline time.Duration
}

// outstanding bounds the questions that wait for an answer, to the newest ones: one lost is
// not asked again.
const outstanding = 64

func (l *lease) init(c *Core) {
	l.length = (c.cfg.Election - c.cfg.Tick) * 99 / 100
	l.nonce = c.cfg.Random()
	l.asked = map[uint64]question{}
}

// void ends the lease, and takes no answer to what was asked before.
func (l *lease) void() {
	l.until = 0
	l.granted = nil
	clear(l.asked)
}

// probe asks.
func (l *lease) probe(c *Core, now time.Duration) {
	if c.lead == raft.None || c.state == raft.StateLeader && !c.props.ready {
		return
	}
	if c.backlog.leavesOut(c) || c.behind.is {
		return
	}
	l.seq++
	delete(l.asked, l.seq-outstanding)
	l.asked[l.seq] = question{now, c.term}
	ctx := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, l.nonce), l.seq)
	c.rn.ReadIndex(ctx)
}

// answered takes answers.
func (l *lease) answered(c *Core, answers []raft.ReadState) {
	for _, a := range answers {
		if len(a.RequestCtx) != 16 || binary.BigEndian.Uint64(a.RequestCtx) != l.nonce {
			continue
		}
		seq := binary.BigEndian.Uint64(a.RequestCtx[8:])
		q, found := l.asked[seq]
		if !found || q.term != c.term {
			continue
		}
		delete(l.asked, seq)
		c.behind.answered = max(c.behind.answered, a.Index)
		l.granted = append(l.granted, grant{a.Index, q.at + l.length, c.term})
		for i, r := range l.readers {
			if r.index == 0 && seq > r.after {
				l.readers[i].index = a.Index
			}
		}
	}
	if len(answers) > 0 {
		l.reached(c)
	}
}

// reached counts the answers whose index is applied.
func (l *lease) reached(c *Core) {
	kept := l.granted[:0]
	for _, g := range l.granted {
		switch {
		case g.index > c.tables.Index:
			kept = append(kept, g)
		case g.until > l.until:
			l.until = g.until
		}
	}
	l.granted = kept
	l.read(c)
}

// read answers readers whose index is applied.
func (l *lease) read(c *Core) {
	kept := l.readers[:0]
	for _, r := range l.readers {
		has := c.applied
		if r.tables {
			has = c.tables.Index
		}
		if r.index == 0 || r.index > has {
			kept = append(kept, r)
			continue
		}
		c.out.Replies = append(c.out.Replies, Reply{Token: r.token, Index: r.index})
	}
	l.readers = kept
}

// Read has a Reply given once the state machine has applied all that was committed, anywhere,
// before this call; by the deadline with api.ErrBusy, and at once with api.ErrRefused at a peer
// that was removed, whom nobody answers. With ErrBusy the Reply's Index is up to where that is,
// or 0 if it is not known yet; a call with that index goes on waiting for it, and for no more.
func (c *Core) Read(token, index uint64, deadline time.Duration) {
	c.read(reader{token: token, index: index, deadline: deadline})
}

// ReadTables is as Read, of [Core.Tables], and does not wait for the state machine.
func (c *Core) ReadTables(token, index uint64, deadline time.Duration) {
	c.read(reader{token: token, tables: true, index: index, deadline: deadline})
}

func (c *Core) read(r reader) {
	defer contain()
	l := &c.lease
	if c.contact.removed != nil {
		c.out.Replies = append(c.out.Replies, Reply{Token: r.token, Err: c.refused()})
		return
	}
	r.after = l.seq
	l.readers = append(l.readers, r)
	if r.index != 0 {
		l.read(c)
		return
	}
	if len(l.asked) < outstanding/2 {
		l.probe(c, c.now())
	}
}

// overdue gives readers up.
func (l *lease) overdue(c *Core, now time.Duration) {
	kept := l.readers[:0]
	for _, r := range l.readers {
		if now < r.deadline {
			kept = append(kept, r)
			continue
		}
		c.out.Replies = append(c.out.Replies, Reply{Token: r.token, Index: r.index, Err: api.ErrBusy})
	}
	l.readers = kept
}
