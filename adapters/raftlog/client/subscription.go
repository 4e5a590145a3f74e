package client

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

// DefaultKeepaliveTimeout is the default of [WithKeepaliveTimeout].
const DefaultKeepaliveTimeout = time.Second

// SubscribeOption is an option of [Client.Subscribe].
type SubscribeOption interface{ applySubscribe(*Subscription) }

type subscribeOption func(*Subscription)

func (f subscribeOption) applySubscribe(s *Subscription) { f(s) }

// WithLeader makes the leader serve the subscription, instead of any peer, as soon as the client knows the
// leader. Entries arrive slightly earlier, and all from one peer.
func WithLeader() SubscribeOption {
	return subscribeOption(func(s *Subscription) { s.fromLeader = true })
}

// WithKeepaliveTimeout sets the time after which another peer is tried if a peer sends nothing or
// has no leader, also while a snapshot is read. Idle peers send a keepalive every 500 ms,
// so d should be longer. The default is 1 s, which is also used if d is not positive.
func WithKeepaliveTimeout(d time.Duration) SubscribeOption {
	return subscribeOption(func(s *Subscription) {
		if d > 0 {
			s.keepaliveTimeout = d
		}
	})
}

// Subscription follows the log without gaps: the delivered entries have consecutive
// indexes, and start after the delivered snapshot, if any. It survives the loss of
// connections and peers. Each subscription uses a separate connection. If its events are not
// received, it stores one event, and the peer stops sending when the buffers of the connection
// are full.
type Subscription struct {
	client           *Client
	events           chan Event
	ended            chan struct{}
	ctx              context.Context
	cancel           context.CancelCauseFunc
	fromLeader       bool
	keepaliveTimeout time.Duration

	// The following fields belong to the goroutine of the subscription.
	next            uint64            // the index of the next entry to deliver
	peer            api.Peer          // the peer that sends the events
	fresh           bool              // EventFresh was delivered, and no EventStale after it
	rejected        map[api.Peer]bool // the peers that have rejected the client
	attemptedAt     time.Time         // the time at which the last attempt started
	leader          api.Peer          // the leader according to the peer
	leaderlessSince time.Time         // the time at which the peer lost its leader; zero if the peer has a leader
	lastErr         error             // the error of the last attempt to read from a peer; nil after a peer has answered

	err error // the reason why the subscription has ended; set before ended is closed
}

// Subscribe follows the log starting at index from; 0 and 1 are its start, and a reader
// that knows the entries up to i continues with i+1. If these entries are not available any
// more, the subscription starts with a snapshot. It lasts until Close, until ctx is done,
// or until a permanent error. The caller must receive from Events until the channel is
// closed, or call Close.
func (c *Client) Subscribe(ctx context.Context, from uint64, options ...SubscribeOption) *Subscription {
	s := newSubscription(ctx, c, from, options)
	stop := context.AfterFunc(c.ctx, func() { s.cancel(context.Cause(c.ctx)) })
	deliverEvents := func() {
		defer stop()
		s.err = fmt.Errorf("raftlog: subscription of cluster %q at index %d: %w", c.cfg.Cluster, s.next, s.readPeers())
		s.cancel(s.err)
		close(s.ended)
		close(s.events)
	}
	if !c.startGoroutine(deliverEvents) {
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
		next: max(from, 1), keepaliveTimeout: DefaultKeepaliveTimeout, rejected: map[api.Peer]bool{},
	}
	for _, o := range options {
		o.applySubscribe(s)
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

// readPeers delivers the events of one peer after another until the subscription must end, and
// returns the reason.
func (s *Subscription) readPeers() error {
	c := s.client
	s.peer = c.firstPeer()
	for {
		s.attemptedAt = time.Now()
		err := s.readPeer()
		if s.cause() != nil {
			return s.endError()
		}
		s.lastErr = fmt.Errorf("peer %v: %w", s.peer, err)
		if errors.Is(err, ErrGap) || errors.Is(err, api.ErrInvalid) {
			return s.lastErr
		}
		delete(s.rejected, s.peer)
		if errors.Is(err, api.ErrRefused) && s.addRejection() {
			return err
		}
		if errors.Is(err, rpc.ErrQuiet) {
			s.deliver(Event{Kind: EventTimeout, Err: err})
		}
		s.reportStale(err)
		moved := errors.Is(err, errMoved)
		if !moved {
			c.forgetLeader(s.peer)
			c.requestRefresh()
		}
		// Start the next attempt at least a random pause after the start of this one.
		if c.sleep(s.ctx, c.randomPause()-time.Since(s.attemptedAt)) != nil {
			return s.endError()
		}
		if moved {
			s.peer = s.leader
		} else {
			s.peer = c.nextPeer(s.peer)
		}
	}
}

// cause returns why the subscription must end: the cause of its context or of the client's context. It
// returns nil if both are active. It also reads the context of the client, because Close of the client
// cancels s.ctx in another goroutine (context.AfterFunc), and this goroutine may not have run yet.
func (s *Subscription) cause() error {
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	return context.Cause(s.client.ctx)
}

// endError returns the cause that ended the subscription. If the last attempt failed, endError adds the error
// of the attempt as text, and does not wrap it, because this error did not end the subscription.
func (s *Subscription) endError() error {
	cause := s.cause()
	if s.lastErr != nil {
		return fmt.Errorf("%w; the last attempt: %v", cause, s.lastErr)
	}
	return cause
}

// addRejection records that the current peer has rejected the client, and reports whether all peers have
// rejected it.
func (s *Subscription) addRejection() bool {
	s.rejected[s.peer] = true
	for _, p := range s.client.peers() {
		if !s.rejected[p] {
			return false
		}
	}
	return true
}

// The reasons for which a subscription leaves a peer that still sends events.
var (
	errMoved    = errors.New("another peer is the leader")
	errNoLeader = errors.New("the peer has no contact with a leader")
)

// readPeer delivers the events of one peer until the stream ends, and returns the reason.
func (s *Subscription) readPeer() error {
	conn, err := s.client.dial(s.ctx, s.peer, link.PurposeStream)
	if err != nil {
		return err
	}
	stream := rpc.Entries(s.ctx, conn, s.next, s.keepaliveTimeout)
	defer stream.Close()
	s.leaderlessSince = time.Time{}
	for {
		event, err := stream.Next()
		if err != nil {
			return err
		}
		s.lastErr = nil
		switch {
		case event.Entry != nil:
			if event.Entry.Index != s.next {
				return &GapError{Peer: s.peer, Want: s.next, Got: event.Entry.Index}
			}
			if !s.deliver(Event{Kind: EventEntry, Entry: event.Entry}) {
				return context.Cause(s.ctx)
			}
			s.next++
		case event.Snapshot != nil:
			err = s.handleSnapshot(event.Snapshot)
		case event.Progress != nil:
			err = s.handleProgress(event.Progress)
		}
		if err != nil {
			return err
		}
	}
}

// deliver sends an event to the channel of Events, and reports whether the caller has received it before the
// subscription ended.
func (s *Subscription) deliver(e Event) bool {
	e.Peer = s.peer
	select {
	case s.events <- e:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// reportStale delivers EventStale if EventFresh was delivered before.
func (s *Subscription) reportStale(err error) {
	if s.fresh {
		s.fresh = false
		s.deliver(Event{Kind: EventStale, Err: err})
	}
}

// handleProgress delivers EventFresh or EventStale if the progress requires it. It returns an error if the
// subscription should continue at another peer.
func (s *Subscription) handleProgress(p *api.Progress) error {
	s.leader = p.Leader
	if p.Fresh {
		s.leaderlessSince = time.Time{}
		if !s.fresh && s.next > p.Commit {
			s.fresh = s.deliver(Event{Kind: EventFresh, Leader: p.Leader, Term: p.Term})
		}
		if s.fromLeader && p.Leader.Addr != "" && p.Leader != s.peer {
			return errMoved
		}
	} else {
		s.reportStale(errNoLeader)
		if s.leaderlessSince.IsZero() {
			s.leaderlessSince = time.Now()
		} else if time.Since(s.leaderlessSince) >= s.keepaliveTimeout {
			return errNoLeader
		}
	}
	return nil
}

// handleSnapshot delivers a snapshot, and waits until its data was read or closed.
func (s *Subscription) handleSnapshot(from *api.SnapshotStream) error {
	if from.Index < s.next {
		return &GapError{Peer: s.peer, Want: s.next, Got: from.Index}
	}
	s.reportStale(fmt.Errorf("entries before index %d are available only in a snapshot", from.Index+1))
	data := &snapshotData{ReadCloser: from.Data, done: make(chan error, 1)}
	delivered := *from
	delivered.Data = data
	if !s.deliver(Event{Kind: EventSnapshot, Snapshot: &delivered}) {
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

// snapshotData is the data of a delivered snapshot. It sends nil or an error to done when the caller has read
// all data, when a read fails, or when the caller closes it.
type snapshotData struct {
	io.ReadCloser
	once sync.Once
	done chan error
}

func (d *snapshotData) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if err == io.EOF {
		d.finish(nil)
	} else if err != nil {
		d.finish(err)
	}
	return n, err
}

// Close closes the data, unless all data was read, a read has failed, or Close was called before: in these
// cases the goroutine of the subscription already uses or closes the connection.
func (d *snapshotData) Close() (err error) {
	d.once.Do(func() {
		err = d.ReadCloser.Close()
		d.done <- err
	})
	return err
}

func (d *snapshotData) finish(err error) { d.once.Do(func() { d.done <- err }) }
