package raftlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/core"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
)

// Subscription is a stream of the entries of the log, in order and without gaps.
type Subscription struct {
	events chan api.Event
	stop   context.CancelFunc
	done   chan struct{}
	err    error
}

// Subscribe returns a stream of the entries that this peer has applied, starting at index
// from; 0 and 1 are the start of the log. If the entries are not available any more, the
// stream starts with the newest snapshot and continues with the following entries. A slow
// reader does not delay other operations and misses nothing. The stream ends when ctx is
// done, when it is closed, and when the node stops.
func (n *Node) Subscribe(ctx context.Context, from uint64) *Subscription {
	ctx, cancel := context.WithCancel(ctx)
	s := &Subscription{events: make(chan api.Event), stop: cancel, done: make(chan struct{})}
	events := n.events(ctx, from)
	go func() {
		defer close(s.events)
		defer close(s.done) // first: whoever sees the end of Events is told why
		defer events.Close()
		for {
			e, err := events.Next()
			if err != nil {
				s.err = err
				return
			}
			select {
			case s.events <- e:
				continue
			case <-ctx.Done():
				s.err = context.Cause(ctx)
			case <-n.ctx.Done():
				s.err = context.Cause(n.ctx)
			}
			if e.Snapshot != nil {
				e.Snapshot.Data.Close()
			}
			return
		}
	}()
	return s
}

// Events returns the channel of the stream. It is closed when the stream ends.
func (s *Subscription) Events() <-chan api.Event { return s.events }

// Err returns the reason why the stream has ended, and nil before Events is closed.
func (s *Subscription) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Close ends the stream, and blocks until its goroutines have ended.
func (s *Subscription) Close() {
	s.stop()
	<-s.done
	for range s.events { // nothing comes any more; until it is closed
	}
}

// events are read from the log's files, so that whoever reads makes nobody wait.
type events struct {
	n      *Node
	ctx    context.Context
	stop   context.CancelFunc
	next   uint64
	ready  []api.Event
	caught uint64 // the commit index of the last pulse
}

func (n *Node) events(ctx context.Context, from uint64) *events {
	ctx, cancel := context.WithCancel(ctx)
	return &events{n: n, ctx: ctx, stop: cancel, next: max(from, 1)}
}

// pulseInterval is how often a stream with nothing new says so.
const pulseInterval = 500 * time.Millisecond

// readBytes is how much is read from the log at a time.
const readBytes = 256 << 10

func (e *events) Close() error {
	e.stop()
	return nil
}

// Next implements [rpc.Events].
func (e *events) Next() (api.Event, error) {
	quiet := time.NewTimer(pulseInterval)
	defer quiet.Stop()
	for {
		if e.ctx.Err() != nil {
			return api.Event{}, e.end(context.Cause(e.ctx))
		}
		if e.n.ctx.Err() != nil {
			return api.Event{}, e.end(context.Cause(e.n.ctx))
		}
		if len(e.ready) > 0 {
			ev := e.ready[0]
			e.ready = e.ready[1:]
			return ev, nil
		}
		applied, grown := e.n.applied.now()
		if e.next <= applied {
			if err := e.read(applied); err != nil {
				if e.n.ctx.Err() != nil { // the log is closed
					err = context.Cause(e.n.ctx)
				}
				return api.Event{}, err
			}
			continue
		}
		if e.caught < applied {
			return e.pulse(applied), nil
		}
		select {
		case <-grown:
		case <-quiet.C:
			return e.pulse(applied), nil
		case <-e.ctx.Done():
		case <-e.n.ctx.Done():
			return api.Event{}, context.Cause(e.n.ctx)
		}
	}
}

// end closes what nobody gets any more.
func (e *events) end(why error) error {
	for _, ev := range e.ready {
		if ev.Snapshot != nil {
			ev.Snapshot.Data.Close()
		}
	}
	e.ready = nil
	return why
}

func (e *events) pulse(applied uint64) api.Event {
	e.caught = applied
	s := e.n.status.Load()
	p := api.Progress{Commit: max(s.Commit, applied), Term: s.Term, Leader: s.Leader, Fresh: s.Lease > clock{e.n}.Now()}
	if s.Role == core.Leader {
		p.Leader = e.n.cfg.self()
	}
	return api.Event{Progress: &p}
}

// read takes the next entries that are applied from the log, or the snapshot before them.
func (e *events) read(applied uint64) error {
	if e.next < e.n.status.Load().First {
		return e.jump()
	}
	// Taken before the entries are read: skips are forgotten when their entries are compacted.
	skips := *e.n.skips.Load()
	entries, err := e.n.files.Entries(e.next, applied+1, readBytes)
	if errors.Is(err, raft.ErrCompacted) {
		return e.jump()
	}
	if err != nil {
		return fmt.Errorf("raftlog: read the log: %w", err)
	}
	for _, raw := range entries {
		d, err := entry.Decode(raw)
		if err != nil {
			return fmt.Errorf("%w: %w", api.ErrFault, err)
		}
		user := d.Entry()
		_, user.Skipped = slices.BinarySearch(skips, d.Index)
		e.ready = append(e.ready, api.Event{Entry: &user})
		e.next = d.Index + 1
	}
	return nil
}

// jump goes on behind the newest snapshot.
func (e *events) jump() error {
	r, err := e.n.newest()
	if err != nil {
		return fmt.Errorf("raftlog: entry %d is in a snapshot: %w", e.next, err)
	}
	m := r.Meta()
	e.next = m.Index + 1
	e.ready = append(e.ready, api.Event{Snapshot: &api.SnapshotStream{
		Index: m.Index, Term: m.Term, Size: r.DataSize(), Data: struct {
			io.Reader
			io.Closer
		}{r.Data(), r},
	}})
	return nil
}
