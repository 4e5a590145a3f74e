package rpctest

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// PulseEvery is the interval at which the streams of peers report their progress.
const PulseEvery = 300 * time.Millisecond

// Cluster is a log in memory that all its peers share, and the leader of the log.
type Cluster struct {
	mu       sync.Mutex
	entries  []*api.Entry // the entries after the snapshot
	snapshot uint64
	data     []byte // the data of the snapshot
	members  api.Membership
	leader   api.Peer
	applied  map[api.RequestID]uint64
	sums     map[api.RequestID]uint32
	holding  bool // whether entries wait for Release before they are applied
	changed  chan struct{}
	peers    map[string]*Peer

	elections map[string]api.Election
}

// New returns a cluster whose members are the given peers. The first peer is the leader.
func New(peers ...api.Peer) *Cluster {
	c := &Cluster{
		applied: map[api.RequestID]uint64{}, sums: map[api.RequestID]uint32{},
		changed: make(chan struct{}), peers: map[string]*Peer{}, leader: peers[0],
		members: api.Membership{Index: 1, Voters: peers}, elections: map[string]api.Election{},
	}
	for _, p := range peers {
		c.Peer(p)
	}
	return c
}

// Peer returns the peer with the ID of p. If there is no such peer, Peer creates one that is not a
// member.
func (c *Cluster) Peer(p api.Peer) *Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peers[p.ID] == nil {
		c.peers[p.ID] = &Peer{Self: p, cluster: c, calls: map[string]int{}}
	}
	return c.peers[p.ID]
}

// Lead makes p the leader. If p is the zero peer, there is no leader.
func (c *Cluster) Lead(p api.Peer) { c.update(func() { c.leader = p }) }

// Hold makes proposals wait after they were appended to the log, until Release is called.
func (c *Cluster) Hold() { c.update(func() { c.holding = true }) }

// Release applies the entries that wait because of Hold. Later entries do not wait any more.
func (c *Cluster) Release() { c.update(func() { c.holding = false }) }

// SetMembers replaces the membership of the cluster.
func (c *Cluster) SetMembers(m api.Membership) { c.update(func() { c.members = m }) }

// Compact replaces all entries of the log by a snapshot with the given data.
func (c *Cluster) Compact(data []byte) {
	c.update(func() { c.snapshot, c.entries, c.data = c.lastIndex(), nil, data })
}

// Append appends n entries of size bytes each to the log.
func (c *Cluster) Append(n, size int) {
	c.update(func() {
		for range n {
			c.entries = append(c.entries, &api.Entry{Index: c.lastIndex() + 1, Term: 1, Data: bytes.Repeat([]byte{byte(c.lastIndex())}, size)})
		}
	})
}

// Entries returns the entries with the given request ID.
func (c *Cluster) Entries(id api.RequestID) (found []*api.Entry) {
	c.update(func() {
		for _, e := range c.entries {
			if e.ID == id {
				found = append(found, e)
			}
		}
	})
	return found
}

// Last returns the index of the last entry of the log.
func (c *Cluster) Last() (last uint64) {
	c.update(func() { last = c.lastIndex() })
	return last
}

func (c *Cluster) lastIndex() uint64 { return c.snapshot + uint64(len(c.entries)) }

func (c *Cluster) update(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// Peer is one peer of a Cluster. It implements rpc.Service.
type Peer struct {
	Self    api.Peer
	cluster *Cluster

	mu          sync.Mutex
	calls       map[string]int
	before      func(ctx context.Context, call string) error
	after       func(ctx context.Context, call string) error
	gap         func(index uint64) uint64
	stale       bool
	silent      bool
	entriesRead uint64
}

// Before makes every call of a method of the peer call f first, with the name of the method. If f
// returns an error, the method returns that error.
func (p *Peer) Before(f func(ctx context.Context, call string) error) {
	p.configure(func() { p.before = f })
}

// After makes every Propose and ChangePeers call f after the entry was applied. If f returns an error,
// the method returns that error instead of its result.
func (p *Peer) After(f func(ctx context.Context, call string) error) {
	p.configure(func() { p.after = f })
}

// Gap makes the peer send each entry and each snapshot with another index: the result of f for the real index.
func (p *Peer) Gap(f func(index uint64) uint64) { p.configure(func() { p.gap = f }) }

// Stale makes the peer report that it has no contact to a leader if stale is true, and that it has contact
// otherwise.
func (p *Peer) Stale(stale bool) { p.configure(func() { p.stale = stale }) }

// Silent makes the streams of the peer send nothing if silent is true, and lets them send again otherwise.
func (p *Peer) Silent(silent bool) {
	p.configure(func() { p.silent = silent })
	p.cluster.update(func() {})
}

func (p *Peer) configure(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// Calls returns how often clients have called a method of the peer.
func (p *Peer) Calls(call string) (n int) {
	p.configure(func() { n = p.calls[call] })
	return n
}

// Read returns the number of entries that the streams of the peer have read from the log.
func (p *Peer) Read() (n uint64) {
	p.configure(func() { n = p.entriesRead })
	return n
}

func (p *Peer) recordCall(ctx context.Context, call string) error {
	var before func(context.Context, string) error
	p.configure(func() {
		p.calls[call]++
		before = p.before
	})
	if before == nil {
		return nil
	}
	return before(ctx, call)
}

func (p *Peer) propose(ctx context.Context, call string, id api.RequestID, data []byte, kind api.Kind) (uint64, error) {
	if err := p.recordCall(ctx, call); err != nil {
		return 0, err
	}
	c := p.cluster
	c.mu.Lock()
	if c.leader != p.Self {
		defer c.mu.Unlock()
		return 0, &api.NotLeaderError{Leader: c.leader}
	}
	index, again := c.applied[id]
	sum := crc32.ChecksumIEEE(data)
	if again && c.sums[id] != sum {
		defer c.mu.Unlock()
		return 0, fmt.Errorf("%w: %v", api.ErrRequestIDReused, id)
	}
	c.mu.Unlock()
	if !again {
		c.update(func() {
			index = c.lastIndex() + 1
			c.entries = append(c.entries, &api.Entry{Index: index, Term: 1, Kind: kind, ID: id, Time: time.Now(), Data: data})
			c.applied[id], c.sums[id] = index, sum
		})
	}
	for {
		c.mu.Lock()
		holding, changed := c.holding, c.changed
		c.mu.Unlock()
		if !holding {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", api.ErrUnknownOutcome, context.Cause(ctx))
		}
	}
	var after func(context.Context, string) error
	p.configure(func() { after = p.after })
	if after != nil {
		if err := after(ctx, call); err != nil {
			return 0, err
		}
	}
	return index, nil
}

// Propose implements rpc.Service.
func (p *Peer) Propose(ctx context.Context, id api.RequestID, data []byte) (uint64, error) {
	return p.propose(ctx, "Propose", id, data, api.KindState)
}

// ChangePeers implements rpc.Service.
func (p *Peer) ChangePeers(ctx context.Context, id api.RequestID, voters []api.Peer) (uint64, error) {
	index, err := p.propose(ctx, "ChangePeers", id, fmt.Append(nil, voters), api.KindConfig)
	if err == nil {
		p.cluster.update(func() { p.cluster.members = api.Membership{Index: index, Voters: slices.Clone(voters)} })
	}
	return index, err
}

// Membership implements rpc.Service.
func (p *Peer) Membership(ctx context.Context) (api.Membership, error) {
	if err := p.recordCall(ctx, "Membership"); err != nil {
		return api.Membership{}, err
	}
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	return p.cluster.members, nil
}

// Election implements rpc.Service.
func (p *Peer) Election(ctx context.Context, name string) (api.Election, error) {
	if err := p.recordCall(ctx, "Election"); err != nil {
		return api.Election{}, err
	}
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	return p.cluster.elections[name], nil
}

// RequestResign implements rpc.Service. It removes the candidate from the election.
func (p *Peer) RequestResign(ctx context.Context, name, candidate string) error {
	if err := p.recordCall(ctx, "RequestResign"); err != nil {
		return err
	}
	p.cluster.mu.Lock()
	e := p.cluster.elections[name]
	p.cluster.mu.Unlock()
	isCandidate := func(c api.Candidate) bool { return c.ID == candidate }
	if !slices.ContainsFunc(e.Candidates, isCandidate) || !strings.HasPrefix(candidate, p.Self.ID+"/") {
		return api.ErrNoCandidate
	}
	e.Candidates = slices.DeleteFunc(slices.Clone(e.Candidates), isCandidate)
	p.cluster.SetElection(name, e)
	return nil
}

// SetElection sets the state that the peers return for an election.
func (c *Cluster) SetElection(name string, e api.Election) {
	c.update(func() { c.elections[name] = e })
}

// Info implements rpc.Service.
func (p *Peer) Info(ctx context.Context) (api.Info, error) {
	if err := p.recordCall(ctx, "Info"); err != nil {
		return api.Info{}, err
	}
	c := p.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	return api.Info{Peer: p.Self, Role: "follower", Leader: c.leader, FirstIndex: c.snapshot + 1, CommitIndex: c.lastIndex(), LastIndex: c.lastIndex()}, nil
}

// Snapshot implements rpc.Service.
func (p *Peer) Snapshot(ctx context.Context) (api.SnapshotStream, error) {
	if err := p.recordCall(ctx, "Snapshot"); err != nil {
		return api.SnapshotStream{}, err
	}
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	return p.cluster.newSnapshotStream(), nil
}

func (c *Cluster) newSnapshotStream() api.SnapshotStream {
	return api.SnapshotStream{Index: c.snapshot, Term: 1, Size: int64(len(c.data)), Data: io.NopCloser(bytes.NewReader(c.data))}
}

// maxEvents is the maximum number of entries in one call of the send function of a stream.
const maxEvents = 200

// Entries implements rpc.Service.
func (p *Peer) Entries(ctx context.Context, from uint64, send func([]api.Event) error) error {
	if err := p.recordCall(ctx, "Entries"); err != nil {
		return err
	}
	e := &streamCursor{peer: p, nextIndex: max(from, 1)}
	timer := time.NewTimer(PulseEvery)
	defer timer.Stop()
	for due := false; ; {
		batch, changed := e.nextEvents(due)
		if len(batch) > 0 {
			if err := send(batch); err != nil {
				return err
			}
			due = false
			timer.Reset(PulseEvery)
			continue
		}
		select {
		case <-changed:
		case <-timer.C:
			due = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// streamCursor is the position in the log up to which a stream has sent entries.
type streamCursor struct {
	peer       *Peer
	nextIndex  uint64
	progressed bool
}

// nextEvents returns the next events of a stream. If there are none, it returns a channel that is
// closed after the next change.
func (e *streamCursor) nextEvents(due bool) (found []api.Event, changed <-chan struct{}) {
	p, c := e.peer, e.peer.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	last := c.lastIndex()
	switch {
	case p.silent:
	case e.nextIndex <= c.snapshot:
		e.nextIndex, e.progressed = c.snapshot+1, false
		s := c.newSnapshotStream()
		if p.gap != nil {
			s.Index = p.gap(s.Index)
		}
		return []api.Event{{Snapshot: &s}}, nil
	case e.nextIndex <= last && !c.holding:
		for ; e.nextIndex <= last && len(found) < maxEvents; e.nextIndex++ {
			entry := c.entries[e.nextIndex-c.snapshot-1]
			p.entriesRead++
			if p.gap != nil {
				entry = &api.Entry{Index: p.gap(entry.Index), Term: entry.Term}
			}
			found = append(found, api.Event{Entry: entry})
		}
		return found, nil
	case due || !e.progressed:
		e.progressed = true
		return []api.Event{{Progress: &api.Progress{Commit: last, Term: 1, Leader: c.leader, Fresh: !p.stale && c.leader != (api.Peer{})}}}, nil
	}
	return nil, c.changed
}
