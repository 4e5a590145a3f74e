package client

// Following the log: one goroutine reads a stream from one peer at a time, and delivers its
// events.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
)

// DefaultKeepaliveTimeout is the default of [KeepaliveTimeout].
const DefaultKeepaliveTimeout = time.Second

// ErrGap is returned if a peer has sent entries that are not consecutive. The error is a
// [GapError].
var ErrGap = errors.New("raftlog: gap between entries")

// GapError is the error of a subscription that has received an unexpected entry. It wraps
// [ErrGap]. The peer, or the connection to it, is faulty.
type GapError struct {
	// Peer is the peer that has sent the entry.
	Peer api.Peer
	// Want is the expected index, and Got the index of the received entry or snapshot.
	Want, Got uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("%s: peer %v has sent index %d where %d has to be; subscribe again at index %d, not at that peer", ErrGap, e.Peer, e.Got, e.Want, e.Want)
}

// Is reports whether target is [ErrGap].
func (e *GapError) Is(target error) bool { return target == ErrGap }

// EventKind is the kind of an Event.
type EventKind int

const (
	// EventEntry delivers the next entry.
	EventEntry EventKind = iota
	// EventSnapshot delivers a snapshot, which replaces the previous state, including
	// earlier snapshots that could not be read completely. The next event follows when its
	// Data was read completely or closed. Reading fails if the connection is lost; then the
	// snapshot is delivered again.
	EventSnapshot
	// EventFresh reports that all entries were delivered that are known to a peer with
	// recent contact to a leader that has a majority. It is not repeated before the next
	// EventStale.
	EventFresh
	// EventStale follows an EventFresh and reports that there may be newer entries. Err is
	// the reason: the peer has lost its leader, the connection was lost, or a snapshot
	// skips entries.
	EventStale
	// EventTimeout reports that the peer has sent nothing for KeepaliveTimeout. Another peer is
	// tried.
	EventTimeout
)

var eventKinds = []string{"entry", "snapshot", "fresh", "stale", "timeout"}

// String returns the name of the kind.
func (k EventKind) String() string {
	if k >= 0 && int(k) < len(eventKinds) {
		return eventKinds[k]
	}
	return fmt.Sprintf("EventKind(%d)", int(k))
}

// Event is an element of a subscription.
type Event struct {
	// Kind is the kind of the event.
	Kind EventKind
	// Peer is the peer from which the event was received.
	Peer api.Peer
	// Entry is set for EventEntry. It must not be modified.
	Entry *api.Entry
	// Snapshot is set for EventSnapshot.
	Snapshot *api.SnapshotStream
	// Leader is the leader that the peer knows. It is set for EventFresh.
	Leader api.Peer
	// Term is the term of the leader. It is set for EventFresh.
	Term uint64
	// Err is the reason of EventStale and EventTimeout.
	Err error
}

// SubscribeOption configures a subscription.
type SubscribeOption func(*Subscription)

// FromLeader makes the leader serve the subscription as soon as it is known, instead of any
// peer. Entries arrive slightly earlier, and all from one peer.
func FromLeader() SubscribeOption { return func(s *Subscription) { s.fromLeader = true } }

// KeepaliveTimeout sets the time after which another peer is tried if a peer sends nothing or
// has no leader, also while a snapshot is read. Idle peers send a keepalive every 500 ms,
// so d should be longer. The default is 1 s, which is also used if d is not positive.
func KeepaliveTimeout(d time.Duration) SubscribeOption {
	return func(s *Subscription) {
		if d > 0 {
			s.patience = d
		}
	}
}

// Subscription follows the log without gaps: the delivered entries have consecutive
// indexes, and start after the delivered snapshot, if any. It survives the loss of
// connections and peers. Each subscription has its own connection. If its events are not
// received, it stores one event, and the peer stops sending when the buffers of the connection
// are full.
type Subscription struct {
	client     *Client
	events     chan Event
	ended      chan struct{}
	ctx        context.Context
	cancel     context.CancelCauseFunc
	fromLeader bool
	patience   time.Duration

	// The following fields belong to the goroutine of the subscription.
	next     uint64   // index of the next entry
	peer     api.Peer // peer that sends the events
	fresh    bool
	refused  map[api.Peer]bool
	begun    time.Time // start of the last attempt
	leader   api.Peer  // leader according to the last progress event
	leadless time.Time // when the peer has lost contact with the leader; zero if it has contact
	failed   error     // error of the last attempt, unless a peer has answered since

	err error // set before ended is closed
}

// Subscribe follows the log starting at index from; 0 and 1 are its start, and a reader
// that knows the entries up to i continues with i+1. If these entries are not available any
// more, the subscription starts with a snapshot. It lasts until Close, until ctx is done,
// or until a permanent error. The caller must receive from Events until the channel is
// closed, or call Close.
func (c *Client) Subscribe(ctx context.Context, from uint64, options ...SubscribeOption) *Subscription {
	s := newSubscription(ctx, c, from, options)
	stop := context.AfterFunc(c.ctx, func() { s.cancel(context.Cause(c.ctx)) })
	run := func() {
		defer stop()
		s.err = fmt.Errorf("raftlog: subscription of cluster %q at index %d: %w", c.cfg.Cluster, s.next, s.run())
		s.cancel(s.err)
		close(s.ended)
		close(s.events)
	}
	if !c.start(run) {
		s.err = context.Cause(c.ctx)
		s.cancel(s.err)
		close(s.ended)
		close(s.events)
	}
	return s
}

// newSubscription returns a subscription whose goroutine has not been started.
func newSubscription(ctx context.Context, c *Client, from uint64, options []SubscribeOption) *Subscription {
	s := &Subscription{
		client: c, events: make(chan Event), ended: make(chan struct{}),
		next: max(from, 1), patience: DefaultKeepaliveTimeout, refused: map[api.Peer]bool{},
	}
	for _, o := range options {
		o(s)
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// Events returns the channel of events. The next event is prepared when the previous one
// was received. The channel is closed when the subscription has ended; Err returns the
// reason.
func (s *Subscription) Events() <-chan Event { return s.events }

// Err returns the reason why the subscription has ended, or nil before. It wraps
// [api.ErrClosed] after Close, the cause of the context, [ErrGap], [api.ErrRefused] if all peers
// reject the client, or [api.ErrInvalid].
func (s *Subscription) Err() error {
	select {
	case <-s.ended:
		return s.err
	default:
		return nil
	}
}

// Close ends the subscription, and blocks until its goroutine has ended. Events that were
// not received are dropped, and reads of the Data of a snapshot return errors. Close may be
// called repeatedly.
func (s *Subscription) Close() error {
	s.cancel(fmt.Errorf("subscription: %w", api.ErrClosed))
	<-s.ended
	return nil
}

// run delivers events until the subscription must end, and returns the reason.
func (s *Subscription) run() error {
	c := s.client
	s.peer = c.firstPeer()
	for {
		s.begun = time.Now()
		err := s.follow()
		if s.ending() != nil {
			return s.over()
		}
		s.failed = fmt.Errorf("peer %v: %w", s.peer, err)
		if errors.Is(err, ErrGap) || errors.Is(err, api.ErrInvalid) {
			return s.failed
		}
		delete(s.refused, s.peer)
		if errors.Is(err, api.ErrRefused) && s.refuse() {
			return err
		}
		if errors.Is(err, rpc.ErrQuiet) {
			s.tell(Event{Kind: EventTimeout, Err: err})
		}
		s.stale(err)
		moved := errors.Is(err, errMoved)
		if !moved {
			c.notLeader(s.peer)
			signal(c.refresh)
		}
		// Start at most one attempt in each pause.
		if c.wait(s.ctx, c.pause()-time.Since(s.begun)) != nil {
			return s.over()
		}
		if moved {
			s.peer = s.leader
		} else {
			s.peer = c.peerAfter(s.peer)
		}
	}
}

// ending returns why the subscription must end: the cause of its context, or of the client's.
// After Close of the client, s.ctx is canceled by another goroutine (context.AfterFunc), so that
// it can still be active when the client's context has ended. It returns nil if both are active.
func (s *Subscription) ending() error {
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	return context.Cause(s.client.ctx)
}

// over returns the cause that ended the subscription. If the last attempt failed, the text of its
// error is added, but not wrapped, because it did not end the subscription.
func (s *Subscription) over() error {
	cause := s.ending()
	if s.failed != nil {
		return fmt.Errorf("%w; the last attempt: %v", cause, s.failed)
	}
	return cause
}

// refuse records that the peer has rejected the client, and reports whether all peers have.
func (s *Subscription) refuse() bool {
	s.refused[s.peer] = true
	for _, p := range s.client.peers() {
		if !s.refused[p] {
			return false
		}
	}
	return true
}

var (
	errMoved    = errors.New("another peer is the leader")
	errNoLeader = errors.New("the peer has no contact with a leader")
)

// follow delivers the events of one peer until the stream ends, and returns the reason.
func (s *Subscription) follow() error {
	conn, err := s.client.dial(s.ctx, s.peer, link.PurposeStream)
	if err != nil {
		return err
	}
	stream := rpc.Entries(s.ctx, conn, s.next, s.patience)
	defer stream.Close()
	s.leadless = time.Time{}
	for {
		event, err := stream.Next()
		if err != nil {
			return err
		}
		s.failed = nil
		switch {
		case event.Entry != nil:
			if event.Entry.Index != s.next {
				return &GapError{Peer: s.peer, Want: s.next, Got: event.Entry.Index}
			}
			if !s.tell(Event{Kind: EventEntry, Entry: event.Entry}) {
				return context.Cause(s.ctx)
			}
			s.next++
		case event.Snapshot != nil:
			err = s.snapshot(event.Snapshot)
		case event.Progress != nil:
			err = s.pulse(event.Progress)
		}
		if err != nil {
			return err
		}
	}
}

// tell delivers an event, and reports whether it was received.
func (s *Subscription) tell(e Event) bool {
	e.Peer = s.peer
	select {
	case s.events <- e:
		return true
	case <-s.ctx.Done():
		return false
	}
}

func (s *Subscription) stale(err error) {
	if s.fresh {
		s.fresh = false
		s.tell(Event{Kind: EventStale, Err: err})
	}
}

func (s *Subscription) pulse(p *api.Progress) error {
	s.leader = p.Leader
	if p.Fresh {
		s.leadless = time.Time{}
		if !s.fresh && s.next > p.Commit {
			s.fresh = s.tell(Event{Kind: EventFresh, Leader: p.Leader, Term: p.Term})
		}
		if s.fromLeader && p.Leader.Addr != "" && p.Leader != s.peer {
			return errMoved
		}
	} else {
		s.stale(errNoLeader)
		if s.leadless.IsZero() {
			s.leadless = time.Now()
		} else if time.Since(s.leadless) >= s.patience {
			return errNoLeader
		}
	}
	return nil
}

// snapshot delivers a snapshot, and waits until its data was read or closed.
func (s *Subscription) snapshot(from *api.SnapshotStream) error {
	if from.Index < s.next {
		return &GapError{Peer: s.peer, Want: s.next, Got: from.Index}
	}
	s.stale(fmt.Errorf("entries before index %d are in a snapshot", from.Index+1))
	data := &snapshotData{ReadCloser: from.Data, done: make(chan error, 1)}
	handed := *from
	handed.Data = data
	if !s.tell(Event{Kind: EventSnapshot, Snapshot: &handed}) {
		return context.Cause(s.ctx)
	}
	select {
	case err := <-data.done:
		if err == nil {
			s.next = from.Index + 1
		}
		return err
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// snapshotData is the data of a snapshot. It sends nil to done when all data was read or it was
// closed, or the error of a read.
type snapshotData struct {
	io.ReadCloser
	once sync.Once
	done chan error
}

func (d *snapshotData) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if err == io.EOF {
		d.over(nil)
	} else if err != nil {
		d.over(err)
	}
	return n, err
}

// Close closes the data once. After that, the goroutine of the subscription owns the data.
func (d *snapshotData) Close() (err error) {
	d.once.Do(func() {
		err = d.ReadCloser.Close()
		d.done <- err
	})
	return err
}

func (d *snapshotData) over(err error) { d.once.Do(func() { d.done <- err }) }
