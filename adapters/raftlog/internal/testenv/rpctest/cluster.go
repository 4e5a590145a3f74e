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
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// PulseEvery is how often the streams of peers tell how far they are.
const PulseEvery = 300 * time.Millisecond

// Cluster is a log that all peers have at once, and who leads.
type Cluster struct {
	mu       sync.Mutex
	entries  []*api.Entry // from snapshot+1 on
	snapshot uint64
	data     []byte // the snapshot's
	members  api.Membership
	leader   api.Peer
	applied  map[requestid.ID]uint64
	sums     map[requestid.ID]uint32
	held     bool // entries are not applied for now
	news     chan struct{}
	peers    map[string]*Peer

	elections map[string]api.Election
}

// New returns a cluster of these peers, led by the first one.
func New(peers ...api.Peer) *Cluster {
	c := &Cluster{
		applied: map[requestid.ID]uint64{}, sums: map[requestid.ID]uint32{},
		news: make(chan struct{}), peers: map[string]*Peer{}, leader: peers[0],
		members: api.Membership{Index: 1, Voters: peers}, elections: map[string]api.Election{},
	}
	for _, p := range peers {
		c.Peer(p)
	}
	return c
}

// Peer returns a peer of the cluster; a new one, which is no member yet, is made.
func (c *Cluster) Peer(p api.Peer) *Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peers[p.ID] == nil {
		c.peers[p.ID] = &Peer{Self: p, cluster: c, calls: map[string]int{}}
	}
	return c.peers[p.ID]
}

// Lead makes p the leader; the zero peer for none.
func (c *Cluster) Lead(p api.Peer) { c.change(func() { c.leader = p }) }

// Hold lets proposals wait, once they are in the log, until Release.
func (c *Cluster) Hold() { c.change(func() { c.held = true }) }

// Release ends Hold.
func (c *Cluster) Release() { c.change(func() { c.held = false }) }

// SetMembers changes the membership.
func (c *Cluster) SetMembers(m api.Membership) { c.change(func() { c.members = m }) }

// Compact puts all entries into a snapshot with these data.
func (c *Cluster) Compact(data []byte) {
	c.change(func() { c.snapshot, c.entries, c.data = c.last(), nil, data })
}

// Append adds n entries of size bytes.
func (c *Cluster) Append(n, size int) {
	c.change(func() {
		for range n {
			c.entries = append(c.entries, &api.Entry{Index: c.last() + 1, Term: 1, Data: bytes.Repeat([]byte{byte(c.last())}, size)})
		}
	})
}

// Entries returns the entries with that ID.
func (c *Cluster) Entries(id requestid.ID) (found []*api.Entry) {
	c.change(func() {
		for _, e := range c.entries {
			if e.ID == id {
				found = append(found, e)
			}
		}
	})
	return found
}

// Last is the newest index.
func (c *Cluster) Last() (last uint64) {
	c.change(func() { last = c.last() })
	return last
}

func (c *Cluster) last() uint64 { return c.snapshot + uint64(len(c.entries)) }

func (c *Cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.news)
	c.news = make(chan struct{})
}

// Peer is an rpc.Service.
type Peer struct {
	Self    api.Peer
	cluster *Cluster

	mu     sync.Mutex
	calls  map[string]int
	before func(ctx context.Context, call string) error
	after  func(ctx context.Context, call string) error
	gap    func(index uint64) uint64
	stale  bool
	silent bool
	read   uint64
}

// Before has every call begin with f, which may fail it. f gets the method's name.
func (p *Peer) Before(f func(ctx context.Context, call string) error) { p.set(func() { p.before = f }) }

// After has every Propose and ChangePeers end with f once it is applied: the reply is lost
// if f returns an error.
func (p *Peer) After(f func(ctx context.Context, call string) error) { p.set(func() { p.after = f }) }

// Gap has entries, and snapshots, sent under other indexes.
func (p *Peer) Gap(f func(index uint64) uint64) { p.set(func() { p.gap = f }) }

// Stale has the peer's pulses say that it has not heard from a leader.
func (p *Peer) Stale(stale bool) { p.set(func() { p.stale = stale }) }

// Silent has streams send nothing.
func (p *Peer) Silent(silent bool) {
	p.set(func() { p.silent = silent })
	p.cluster.change(func() {})
}

func (p *Peer) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// Calls is how many calls of a method have come.
func (p *Peer) Calls(call string) (n int) {
	p.set(func() { n = p.calls[call] })
	return n
}

// Read is how many entries streams have taken from the log.
func (p *Peer) Read() (n uint64) {
	p.set(func() { n = p.read })
	return n
}

func (p *Peer) begin(ctx context.Context, call string) error {
	var before func(context.Context, string) error
	p.set(func() {
		p.calls[call]++
		before = p.before
	})
	if before == nil {
		return nil
	}
	return before(ctx, call)
}

func (p *Peer) propose(ctx context.Context, call string, id requestid.ID, data []byte, kind api.Kind) (uint64, error) {
	if err := p.begin(ctx, call); err != nil {
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
		c.change(func() {
			index = c.last() + 1
			c.entries = append(c.entries, &api.Entry{Index: index, Term: 1, Kind: kind, ID: id, Time: time.Now(), Data: data})
			c.applied[id], c.sums[id] = index, sum
		})
	}
	for {
		c.mu.Lock()
		held, news := c.held, c.news
		c.mu.Unlock()
		if !held {
			break
		}
		select {
		case <-news:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", api.ErrUnknownOutcome, context.Cause(ctx))
		}
	}
	var after func(context.Context, string) error
	p.set(func() { after = p.after })
	if after != nil {
		if err := after(ctx, call); err != nil {
			return 0, err
		}
	}
	return index, nil
}

// Propose implements rpc.Service.
func (p *Peer) Propose(ctx context.Context, id requestid.ID, data []byte) (uint64, error) {
	return p.propose(ctx, "Propose", id, data, api.KindState)
}

// ChangePeers implements rpc.Service.
func (p *Peer) ChangePeers(ctx context.Context, id requestid.ID, voters []api.Peer) (uint64, error) {
	index, err := p.propose(ctx, "ChangePeers", id, fmt.Append(nil, voters), api.KindConfig)
	if err == nil {
		p.cluster.change(func() { p.cluster.members = api.Membership{Index: index, Voters: slices.Clone(voters)} })
	}
	return index, err
}

// Membership implements rpc.Service.
func (p *Peer) Membership(ctx context.Context) (api.Membership, error) {
	if err := p.begin(ctx, "Membership"); err != nil {
		return api.Membership{}, err
	}
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	return p.cluster.members, nil
}

// Election implements rpc.Service.
func (p *Peer) Election(ctx context.Context, name string) (api.Election, error) {
	if err := p.begin(ctx, "Election"); err != nil {
		return api.Election{}, err
	}
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	return p.cluster.elections[name], nil
}

// AskToResign implements rpc.Service. It removes the candidate from the election.
func (p *Peer) AskToResign(ctx context.Context, name, candidate string) error {
	if err := p.begin(ctx, "AskToResign"); err != nil {
		return err
	}
	p.cluster.mu.Lock()
	e := p.cluster.elections[name]
	p.cluster.mu.Unlock()
	is := func(c api.Candidate) bool { return c.ID == candidate }
	if !slices.ContainsFunc(e.Candidates, is) || !strings.HasPrefix(candidate, p.Self.ID+"/") {
		return api.ErrNoCandidate
	}
	e.Candidates = slices.DeleteFunc(slices.Clone(e.Candidates), is)
	p.cluster.SetElection(name, e)
	return nil
}

// SetElection sets the state of an election.
func (c *Cluster) SetElection(name string, e api.Election) {
	c.change(func() { c.elections[name] = e })
}

// Info implements rpc.Service.
func (p *Peer) Info(ctx context.Context) (api.Info, error) {
	if err := p.begin(ctx, "Info"); err != nil {
		return api.Info{}, err
	}
	c := p.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	return api.Info{Peer: p.Self, Role: "follower", Leader: c.leader, FirstIndex: c.snapshot + 1, CommitIndex: c.last(), LastIndex: c.last()}, nil
}

// Snapshot implements rpc.Service.
func (p *Peer) Snapshot(ctx context.Context) (api.SnapshotStream, error) {
	if err := p.begin(ctx, "Snapshot"); err != nil {
		return api.SnapshotStream{}, err
	}
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	return p.cluster.snapshotStream(), nil
}

func (c *Cluster) snapshotStream() api.SnapshotStream {
	return api.SnapshotStream{Index: c.snapshot, Term: 1, Size: int64(len(c.data)), Data: io.NopCloser(bytes.NewReader(c.data))}
}

// batch is the maximum number of entries that are passed to a stream at once.
const batch = 200

// Entries implements rpc.Service.
func (p *Peer) Entries(ctx context.Context, from uint64, send func([]api.Event) error) error {
	if err := p.begin(ctx, "Entries"); err != nil {
		return err
	}
	e := &events{peer: p, next: max(from, 1)}
	timer := time.NewTimer(PulseEvery)
	defer timer.Stop()
	for due := false; ; {
		batch, news := e.look(due)
		if len(batch) > 0 {
			if err := send(batch); err != nil {
				return err
			}
			due = false
			timer.Reset(PulseEvery)
			continue
		}
		select {
		case <-news:
		case <-timer.C:
			due = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

type events struct {
	peer   *Peer
	next   uint64
	pulsed bool
}

// look returns the next events, or a channel that is closed when there are more.
func (e *events) look(due bool) (found []api.Event, news <-chan struct{}) {
	p, c := e.peer, e.peer.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	last := c.last()
	switch {
	case p.silent:
	case e.next <= c.snapshot:
		e.next, e.pulsed = c.snapshot+1, false
		s := c.snapshotStream()
		if p.gap != nil {
			s.Index = p.gap(s.Index)
		}
		return []api.Event{{Snapshot: &s}}, nil
	case e.next <= last && !c.held:
		for ; e.next <= last && len(found) < batch; e.next++ {
			entry := c.entries[e.next-c.snapshot-1]
			p.read++
			if p.gap != nil {
				entry = &api.Entry{Index: p.gap(entry.Index), Term: entry.Term}
			}
			found = append(found, api.Event{Entry: entry})
		}
		return found, nil
	case due || !e.pulsed:
		e.pulsed = true
		return []api.Event{{Progress: &api.Progress{Commit: last, Term: 1, Leader: c.leader, Fresh: !p.stale && c.leader != (api.Peer{})}}}, nil
	}
	return nil, c.news
}
