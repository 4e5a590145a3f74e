package rpc

// The caller's side of a connection: what is asked for, what is to be written, and the end
// of it all.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// The window of a stream: what may be on its way, or wait to be read.
const (
	windowBytes    = 4 << 20
	windowMessages = 4 << 10
)

// Caller makes the calls of an [Service] at the other end of a connection. Its methods
// may be called from any goroutine, many at once.
//
// Calls that end with the connection return an error that wraps [ErrLost]; if they write and
// their request may have been sent, [api.ErrUnknownOutcome] as well. That is also what
// Propose and ChangePeers return when their context ends after that.
type Caller struct {
	stream     Stream
	wake       chan struct{} // one place: there is something to write
	pong       chan struct{} // one place
	done       chan struct{} // closed with the connection
	slots      chan struct{} // one token a call
	goroutines sync.WaitGroup
	window     grant

	mu      sync.Mutex
	err     error // why the connection has ended
	last    uint64
	calls   map[uint64]*call // that wait for messages
	queue   []*call          // of them, those that were not taken to be written
	control []control        // goes before the queue
	frames  uint64           // received
	seen    uint64           // of them, those that Alive knows of
	writing bool             // a frame is being written
}

// call is a request and whoever waits for the answer.
type call struct {
	kind   byte
	number uint64
	id     requestid.ID
	data   []byte
	voters []api.Peer
	names  []string // of requests about elections
	from   uint64
	taken  bool        // it may have been written
	answer chan answer // one place; of calls that are no streams
	stream *EventStream
}

func (c *call) writes() bool { return c.kind == msgPropose || c.kind == msgChangePeers }

type answer struct {
	body any
	err  error
}

// control is a message that is no request.
type control struct {
	kind  byte
	call  uint64
	grant grant
}

// NewCaller takes the stream over. Close ends it.
func NewCaller(stream Stream) *Caller {
	c := &Caller{
		stream: stream, wake: make(chan struct{}, 1), pong: make(chan struct{}, 1), done: make(chan struct{}),
		slots: make(chan struct{}, maxCalls), calls: map[uint64]*call{},
		window: grant{windowBytes, windowMessages},
	}
	c.goroutines.Go(func() { c.fail(c.write()) })
	c.goroutines.Go(func() { c.fail(c.read()) })
	return c
}

// Done is closed when the connection has ended.
func (c *Caller) Done() <-chan struct{} { return c.done }

// Err is why the connection has ended; nil if it has not.
func (c *Caller) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and waits for the goroutines. Calls under way, and later ones,
// return errors that wrap [api.ErrClosed].
func (c *Caller) Close() error {
	c.fail(api.ErrClosed)
	c.goroutines.Wait()
	return nil
}

// fail ends the connection; the first reason stays.
func (c *Caller) fail(reason error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = fmt.Errorf("%w: %w", ErrLost, reason)
	calls := c.calls
	c.calls, c.queue, c.control = nil, nil, nil
	close(c.done)
	for _, k := range calls {
		err := c.err
		if k.taken && k.writes() && !errors.Is(reason, errNothingDone) {
			err = unknown(err)
		}
		if k.stream != nil {
			k.stream.end(err)
		} else {
			k.answer <- answer{err: err}
		}
	}
	c.mu.Unlock()
	c.stream.Close()
}

// errNothingDone: the server speaks another version and has done nothing.
var errNothingDone = errors.New("the request was not sent")

// Alive tells whether the other side answers. It returns at once if there are no calls, or
// if something has come since the last time; else it asks, and waits. If ctx ends before the
// answer comes, the connection is given up, and all its calls end; but not while a frame is
// being written, which the stream has its own deadline for. One goroutine may call it.
func (c *Caller) Alive(ctx context.Context) error {
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return c.err
	}
	if len(c.calls) == 0 || c.frames != c.seen || c.writing {
		c.seen = c.frames
		c.mu.Unlock()
		return nil
	}
	c.last++
	c.control = append(c.control, control{kind: msgPing, call: c.last})
	c.mu.Unlock()
	signal(c.wake)
	select {
	case <-c.pong:
	case <-c.done:
	case <-ctx.Done():
		c.mu.Lock()
		writing := c.writing
		c.mu.Unlock()
		if !writing {
			c.fail(fmt.Errorf("no answer to a ping: %w", context.Cause(ctx)))
		}
	}
	return c.Err()
}

func (c *Caller) write() error {
	if err := c.stream.WriteFrame(hello()); err != nil {
		return err
	}
	var buffer []byte
	for {
		runtime.Gosched() // others that are about to call go with the same frame
		buffer = c.take(buffer[:0])
		if len(buffer) == 0 {
			select {
			case <-c.wake:
				continue
			case <-c.done:
				return nil
			}
		}
		if err := c.stream.WriteFrame(buffer); err != nil {
			return err
		}
		if cap(buffer) > 2*frameTarget {
			buffer = nil
		}
	}
}

// take appends messages that wait, as many as a frame should have. From then on their calls
// may have been written.
func (c *Caller) take(b []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.control {
		b = appendMessage(b, m.kind, m.call, func(b []byte) []byte {
			if m.kind == msgGrant {
				return appendGrant(b, m.grant)
			}
			return b
		})
	}
	c.control = c.control[:0]
	n := 0
	for _, k := range c.queue {
		if len(b) > 0 && len(b)+len(k.data) > frameTarget {
			break
		}
		b = k.append(b, c.window)
		k.taken = true
		n++
	}
	c.writing = len(b) > 0
	if n == len(c.queue) {
		c.queue = c.queue[:0]
	} else {
		c.queue = slices.Delete(c.queue, 0, n)
	}
	return b
}

func (c *call) append(b []byte, window grant) []byte {
	if c.kind == msgPropose {
		return appendPropose(b, c.number, c.id, c.data)
	}
	return appendMessage(b, c.kind, c.number, func(b []byte) []byte {
		switch c.kind {
		case msgChangePeers:
			return appendChangePeers(b, c.id, c.voters)
		case msgEntries:
			return appendGrant(appendIndex(b, c.from), window)
		case msgSnapshot:
			return appendGrant(b, window)
		}
		for _, name := range c.names {
			b = wire.AppendString(b, name)
		}
		return b
	})
}

// begin gives the call a number and a place in the queue.
func (c *Caller) begin(ctx context.Context, k *call) error {
	select {
	case c.slots <- struct{}{}:
	default:
		select {
		case c.slots <- struct{}{}:
		case <-c.done:
			return c.Err()
		case <-ctx.Done():
			return fmt.Errorf("%d calls are in progress: %w", maxCalls, context.Cause(ctx))
		}
	}
	c.mu.Lock()
	err := c.err
	if err == nil {
		c.last++
		k.number = c.last
		c.calls[k.number] = k
		c.queue = append(c.queue, k)
	}
	c.mu.Unlock()
	if err != nil {
		<-c.slots
		return err
	}
	signal(c.wake)
	return nil
}

// giveUp makes sure that the call gets nothing any more, and tells the server. It tells
// whether that was in time, and whether the request may have been sent.
func (c *Caller) giveUp(k *call) (inTime, sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[k.number] != k {
		return false, k.taken
	}
	delete(c.calls, k.number)
	if k.taken {
		c.control = append(c.control, control{kind: msgCancel, call: k.number})
		signal(c.wake)
	} else {
		c.queue = slices.DeleteFunc(c.queue, func(other *call) bool { return other == k })
	}
	return true, k.taken
}

// withdrawBefore is how long before its deadline a change of the peers is withdrawn, at most: the
// server has this time to answer that nothing was changed. Without an answer the outcome is unknown.
const withdrawBefore = time.Second

// withdrawalLimit is the time in which the server must confirm that it has withdrawn a request to
// resign.
const withdrawalLimit = 1500 * time.Millisecond

// withdraw asks the server to give the call up if it can, and to answer.
func (c *Caller) withdraw(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[k.number] == k && k.taken {
		c.control = append(c.control, control{kind: msgCancel, call: k.number})
		signal(c.wake)
	}
}

// do makes a call that is no stream.
func (c *Caller) do(ctx context.Context, k *call) (any, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	k.answer = make(chan answer, 1)
	if err := c.begin(ctx, k); err != nil {
		return nil, err
	}
	defer func() { <-c.slots }()
	var withdraw <-chan time.Time
	if end, ok := ctx.Deadline(); ok && k.kind == msgChangePeers {
		left := time.Until(end)
		timer := time.NewTimer(left - min(left/4, withdrawBefore))
		defer timer.Stop()
		withdraw = timer.C
	}
	for done := false; !done; {
		select {
		case a := <-k.answer:
			return a.body, a.err
		case <-withdraw:
			c.withdraw(k)
		case <-ctx.Done():
			done = true
		}
	}
	if k.kind == msgAskToResign {
		c.withdraw(k)
		limit := time.NewTimer(withdrawalLimit)
		defer limit.Stop()
		select {
		case a := <-k.answer:
			return a.body, a.err
		case <-limit.C:
		}
	}
	inTime, sent := c.giveUp(k)
	if !inTime {
		a := <-k.answer
		return a.body, a.err
	}
	err := context.Cause(ctx)
	if sent && (k.writes() || k.kind == msgAskToResign) {
		err = unknown(err)
	}
	return nil, err
}

// Propose implements [Service]. data may be changed once it has returned.
func (c *Caller) Propose(ctx context.Context, id requestid.ID, data []byte) (uint64, error) {
	if len(data) > wire.MaxData {
		return 0, fmt.Errorf("%w: %d bytes exceed the limit of %d", api.ErrTooLarge, len(data), wire.MaxData)
	}
	body, err := c.do(ctx, &call{kind: msgPropose, id: id, data: data})
	index, _ := body.(uint64)
	return index, err
}

// ChangePeers implements [Service]. If ctx has a deadline, the server is asked before it to give
// up a change that has not begun, so that the error is [api.ErrBusy] instead of unknown.
func (c *Caller) ChangePeers(ctx context.Context, id requestid.ID, voters []api.Peer) (uint64, error) {
	if err := wire.CheckPeers(voters...); err != nil {
		return 0, err
	}
	body, err := c.do(ctx, &call{kind: msgChangePeers, id: id, voters: slices.Clone(voters)})
	index, _ := body.(uint64)
	return index, err
}

// Membership implements [Service].
func (c *Caller) Membership(ctx context.Context) (api.Membership, error) {
	body, err := c.do(ctx, &call{kind: msgMembership})
	m, _ := body.(api.Membership)
	return m, err
}

// Election implements [Service].
func (c *Caller) Election(ctx context.Context, name string) (api.Election, error) {
	body, err := c.about(ctx, msgElection, name)
	e, _ := body.(api.Election)
	return e, err
}

// AskToResign implements [Service]. When ctx is done, it asks the server to withdraw the
// request. If the server does not confirm that within withdrawalLimit, the error wraps
// [api.ErrUnknownOutcome].
func (c *Caller) AskToResign(ctx context.Context, name, candidate string) error {
	_, err := c.about(ctx, msgAskToResign, name, candidate)
	return err
}

// about makes a call about the election with the first of names.
func (c *Caller) about(ctx context.Context, kind byte, names ...string) (any, error) {
	for _, name := range names {
		if len(name) > maxName {
			return nil, fmt.Errorf("%w: a name of %d bytes exceeds the limit of %d", api.ErrInvalid, len(name), maxName)
		}
	}
	return c.do(ctx, &call{kind: kind, names: names})
}

// Info implements [Service].
func (c *Caller) Info(ctx context.Context) (api.Info, error) {
	body, err := c.do(ctx, &call{kind: msgInfo})
	i, _ := body.(api.Info)
	return i, err
}
