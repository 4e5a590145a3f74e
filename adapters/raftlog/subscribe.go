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
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
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
	if !n.startGoroutine(func() {
		s.endStream(n.followLog(ctx, from, func(events []api.Event) error { return s.deliver(ctx, n.ctx, events) }))
	}) {
		s.endStream(context.Cause(n.ctx))
	}
	return s
}

// endStream closes the channel of the stream, and makes Err return the reason err.
func (s *Subscription) endStream(err error) {
	s.stop()
	s.err = err
	close(s.done) // close done before events, so that Err returns the reason when Events is closed
	close(s.events)
}

// deliver delivers events. It returns the cause of the first context that is done, and closes the
// snapshots that were not delivered.
func (s *Subscription) deliver(ctx, node context.Context, events []api.Event) error {
	for _, e := range events {
		var err error
		select {
		case s.events <- e:
			continue
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-node.Done():
			err = context.Cause(node)
		}
		if e.Snapshot != nil {
			e.Snapshot.Data.Close()
		}
		return err
	}
	return nil
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
	for range s.events { // drop the remaining events until the channel is closed
	}
}

// progressInterval is the interval at which a stream without new entries reports its progress.
const progressInterval = 500 * time.Millisecond

// readBytes is the size, in bytes, of the entries that a subscription reads from the log at a time, and that
// CompactOffline passes to the state machine at a time.
const readBytes = 256 << 10

// followLog passes the entries that this peer has applied, starting at index from, to send, until
// send returns an error, ctx is done, or the node stops. It reads the entries from the files of
// the log, so that a slow reader does not delay other operations. An event with a snapshot is
// passed to send alone, and send must close the data of the snapshot.
func (n *Node) followLog(ctx context.Context, from uint64, send func([]api.Event) error) error {
	next, reported := max(from, 1), uint64(0)
	quiet := time.NewTimer(progressInterval)
	defer quiet.Stop()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if n.ctx.Err() != nil {
			return context.Cause(n.ctx)
		}
		applied, grown := n.applied.load()
		var events []api.Event
		var err error
		switch {
		case next <= applied:
			if events, next, err = n.readEvents(next, applied); err != nil {
				if n.ctx.Err() != nil { // the read has failed because the log is closed
					err = context.Cause(n.ctx)
				}
				return err
			}
		case reported < applied:
			events, reported = n.progressEvent(applied), applied
		default:
			select {
			case <-grown:
				continue
			case <-quiet.C:
				events = n.progressEvent(applied)
			case <-ctx.Done():
				continue
			case <-n.ctx.Done():
				continue
			}
		}
		if err := send(events); err != nil {
			return err
		}
		quiet.Reset(progressInterval)
	}
}

// progressEvent returns the event that reports the progress of this peer.
func (n *Node) progressEvent(applied uint64) []api.Event {
	s := n.publishedStatus()
	p := api.Progress{Commit: max(s.Commit, applied), Term: s.Term, Leader: s.Leader, Fresh: s.Lease > nodeClock{n}.Now()}
	if s.Role == core.Leader {
		p.Leader = n.cfg.ownPeer()
	}
	return []api.Event{{Progress: &p}}
}

// readEvents returns applied entries, starting at index next, or the snapshot that contains these entries. It
// returns the index after the last event.
func (n *Node) readEvents(next, applied uint64) ([]api.Event, uint64, error) {
	if next < n.publishedStatus().First {
		return n.snapshotEvent(next)
	}
	// Read the skips before the entries, because the skips are removed when the entries are compacted.
	skips := *n.skips.Load()
	entries, err := n.files.Entries(next, applied+1, readBytes)
	if errors.Is(err, raft.ErrCompacted) {
		return n.snapshotEvent(next)
	}
	if err != nil {
		return nil, next, fmt.Errorf("raftlog: read the log: %w", err)
	}
	events := make([]api.Event, 0, len(entries))
	for _, raw := range entries {
		d, err := replica.DecodeEntry(raw)
		if err != nil {
			return nil, next, fmt.Errorf("%w: %w", api.ErrFault, err)
		}
		user := d.Entry()
		_, user.Skipped = slices.BinarySearch(skips, d.Index)
		events = append(events, api.Event{Entry: &user})
		next = d.Index + 1
	}
	return events, next, nil
}

// snapshotEvent returns the newest snapshot, which contains the entry with index next.
func (n *Node) snapshotEvent(next uint64) ([]api.Event, uint64, error) {
	r, err := n.newestSnapshot()
	if err != nil {
		return nil, next, fmt.Errorf("raftlog: open the snapshot that contains entry %d: %w", next, err)
	}
	m := r.Meta()
	return []api.Event{{Snapshot: &api.SnapshotStream{
		Index: m.Index, Term: m.Term, Size: r.DataSize(), Data: struct {
			io.Reader
			io.Closer
		}{r.Data(), r},
	}}}, m.Index + 1, nil
}
