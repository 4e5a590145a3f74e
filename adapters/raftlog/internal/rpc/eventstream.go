package rpc

// Streams at the caller: what has come and was not read yet, and what is granted for it.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// ErrQuiet: nothing has come for longer than the patience that was set.
var ErrQuiet = errors.New("no message from the peer")

// EventStream is the stream of a call. One goroutine at a time may use it, but for Close,
// which may be called by any. Whoever has one closes it.
type EventStream struct {
	caller   *Caller
	call     *call
	ctx      context.Context
	some     chan struct{} // one place: something has come
	patience time.Duration
	data     *snapshotData // of the last snapshot
	used     grant         // not granted again yet

	mu    sync.Mutex
	items []item
	left  grantLeft
	ended bool
	err   error // after the items
}

// grantLeft is what the server may send yet, as far as it can know.
type grantLeft struct{ bytes, messages int64 }

// item is what a message has brought: one of these.
type item struct {
	entry *api.Entry
	pulse *api.Progress
	head  *snapshotHeader
	chunk []byte
	end   bool
	size  int
}

// Entries implements [Service]. ctx is the stream's as well: Next returns when it ends.
// Errors of the server come from Next.
func (c *Caller) Entries(ctx context.Context, from uint64) (Events, error) {
	s, err := c.Stream(ctx, from)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Stream is Entries with what this package's streams can do besides.
func (c *Caller) Stream(ctx context.Context, from uint64) (*EventStream, error) {
	return c.newStream(ctx, &call{kind: msgEntries, from: from})
}

func (c *Caller) newStream(ctx context.Context, k *call) (*EventStream, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s := &EventStream{
		caller: c, call: k, ctx: ctx, some: make(chan struct{}, 1),
		left: grantLeft{int64(c.window.bytes), int64(c.window.messages)},
	}
	k.stream = s
	if err := c.begin(ctx, k); err != nil {
		return nil, err
	}
	return s, nil
}

// Snapshot implements [Service]. ctx is the data's as well.
func (c *Caller) Snapshot(ctx context.Context) (api.SnapshotStream, error) {
	s, err := c.newStream(ctx, &call{kind: msgSnapshot})
	if err != nil {
		return api.SnapshotStream{}, err
	}
	event, err := s.Next()
	if err == nil && event.Snapshot == nil {
		err = wire.Violation("an entry where a snapshot has to be")
	}
	if err != nil {
		s.Close()
		return api.SnapshotStream{}, err
	}
	return api.SnapshotStream{Index: event.Snapshot.Index, Term: event.Snapshot.Term, Size: event.Snapshot.Size, Data: wholeCall{event.Snapshot.Data, s}}, nil
}

// wholeCall is a snapshot that ends its call when it is closed.
type wholeCall struct {
	io.ReadCloser
	stream *EventStream
}

func (w wholeCall) Close() error { return w.stream.Close() }

// SetPatience makes Next, and the reading of snapshots, return [ErrQuiet] when they have
// waited for that long with nothing coming. The stream is over then. 0, as at first, is for
// ever.
func (s *EventStream) SetPatience(d time.Duration) { s.patience = d }

// Next implements [Events]. A snapshot has to be read to its end, or closed, before;
// otherwise the error wraps [api.ErrInvalid].
func (s *EventStream) Next() (api.Event, error) {
	if d := s.data; d != nil && !d.over() {
		if !d.closed {
			return api.Event{}, fmt.Errorf("%w: the snapshot before is neither read to its end nor closed", api.ErrInvalid)
		}
		if _, err := io.Copy(io.Discard, readOnly{d}); err != nil {
			return api.Event{}, err
		}
	}
	it, err := s.take()
	switch {
	case err != nil:
		return api.Event{}, err
	case it.entry != nil:
		return api.Event{Entry: it.entry}, nil
	case it.pulse != nil:
		return api.Event{Progress: it.pulse}, nil
	}
	s.data = &snapshotData{stream: s, left: it.head.size, index: it.head.index}
	return api.Event{Snapshot: &api.SnapshotStream{Index: it.head.index, Term: it.head.term, Size: it.head.size, Data: s.data}}, nil
}

// take waits for the next item, and grants as much as it was.
func (s *EventStream) take() (item, error) {
	var timer *time.Timer
	var quiet <-chan time.Time
	for {
		s.mu.Lock()
		if len(s.items) > 0 {
			it := s.items[0]
			s.items[0] = item{}
			s.items = s.items[1:]
			s.mu.Unlock()
			s.grant(it.size)
			return it, nil
		}
		ended, err := s.ended, s.err
		s.mu.Unlock()
		if ended {
			return item{}, err
		}
		if timer == nil && s.patience > 0 {
			timer = time.NewTimer(s.patience)
			quiet = timer.C
			defer timer.Stop()
		}
		select {
		case <-s.some:
		case <-quiet:
			s.cancel(fmt.Errorf("%w for %v", ErrQuiet, s.patience))
		case <-s.ctx.Done():
			s.cancel(context.Cause(s.ctx))
		}
	}
}

// grant lets the server send as much again, when half of the window was read.
func (s *EventStream) grant(size int) {
	s.used.bytes += uint64(size)
	s.used.messages++
	w := s.caller.window
	if s.used.bytes < w.bytes/2 && s.used.messages < w.messages/2 {
		return
	}
	g := s.used
	s.used = grant{}
	s.mu.Lock()
	s.left.bytes += int64(g.bytes)
	s.left.messages += int64(g.messages)
	s.mu.Unlock()
	c := s.caller
	c.mu.Lock()
	if c.calls[s.call.number] == s.call {
		c.control = append(c.control, control{kind: msgGrant, call: s.call.number, grant: g})
	}
	c.mu.Unlock()
	signal(c.wake)
}

// Close implements [Events].
func (s *EventStream) Close() error {
	s.cancel(fmt.Errorf("the stream of entries: %w", api.ErrClosed))
	return nil
}

// cancel gives the call up, and what has come of it.
func (s *EventStream) cancel(reason error) {
	s.caller.giveUp(s.call)
	s.mu.Lock()
	if s.err == nil || errors.Is(reason, api.ErrClosed) {
		s.err = reason
	}
	s.items = nil
	s.finish()
	s.mu.Unlock()
	signal(s.some)
}

// end is called by the connection: no more messages come. What has come can be read yet.
func (s *EventStream) end(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.finish()
	s.mu.Unlock()
	signal(s.some)
}

func (s *EventStream) finish() {
	if !s.ended {
		s.ended = true
		<-s.caller.slots
	}
}

// receive takes a message that has come; it does not wait.
func (s *EventStream) receive(m message) error {
	it := item{size: len(m.body)}
	var err error
	switch m.kind {
	case msgEntry:
		it.entry, err = decodeEntry(m.body)
	case msgPulse:
		it.pulse, err = decodePulse(m.body)
	case msgSnapshotHeader:
		var h snapshotHeader
		h, err = decodeSnapshotHeader(m.body)
		it.head = &h
	case msgChunk:
		if len(m.body) == 0 || len(m.body) > maxChunk {
			err = wire.Violation("a piece of a snapshot of %d bytes", len(m.body))
		}
		it.chunk = append([]byte(nil), m.body...)
	case msgSnapshotEnd:
		it.end = true
	case msgDone:
		s.end(io.EOF)
		return nil
	default:
		err = wire.Violation("a message of kind %d in a stream", m.kind)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && (s.left.bytes <= 0 || s.left.messages <= 0) {
		err = wire.Violation("more was sent of a stream than was granted")
	}
	if err != nil || s.ended {
		return err
	}
	s.left.bytes -= int64(it.size)
	s.left.messages--
	s.items = append(s.items, it)
	signal(s.some)
	return nil
}

// snapshotData is the data of a snapshot in a stream.
type snapshotData struct {
	stream *EventStream
	index  uint64
	left   int64 // to come
	chunk  []byte
	closed bool
	err    error // io.EOF after the end was seen
}

// readOnly is a closed one that can be read.
type readOnly struct{ d *snapshotData }

func (r readOnly) Read(p []byte) (int, error) { return r.d.read(p) }

func (d *snapshotData) over() bool { return d.err == io.EOF }

func (d *snapshotData) Read(p []byte) (int, error) {
	if d.closed {
		return 0, fmt.Errorf("data of the snapshot at index %d: %w", d.index, api.ErrClosed)
	}
	return d.read(p)
}

func (d *snapshotData) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(d.chunk) == 0 && d.err == nil {
		it, err := d.stream.take()
		switch {
		case err == io.EOF, err == nil && it.end && d.left > 0:
			d.err = fmt.Errorf("data of the snapshot at index %d end %d bytes too early: %w", d.index, d.left, io.ErrUnexpectedEOF)
		case err != nil:
			d.err = fmt.Errorf("data of the snapshot at index %d, %d bytes before their end: %w", d.index, d.left, err)
		case it.end:
			d.err = io.EOF
		case it.chunk == nil || int64(len(it.chunk)) > d.left:
			d.err = wire.Violation("what follows the snapshot at index %d is not its data", d.index)
			d.stream.cancel(d.err)
		default:
			d.chunk = it.chunk
			d.left -= int64(len(it.chunk))
		}
	}
	if len(d.chunk) == 0 {
		return 0, d.err
	}
	n := copy(p, d.chunk)
	d.chunk = d.chunk[n:]
	return n, nil
}

// Close implements [io.Closer]. The rest is skipped by the next call of Next.
func (d *snapshotData) Close() error {
	d.closed = true
	return nil
}
