package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// Caller makes the calls of a [Service] at the other end of a connection, except those that
// return streams. Its methods may be called concurrently.
//
// If the connection is lost, pending calls return errors that wrap [ErrLost]. If such a call
// changes something and its request may have been sent, the error also wraps
// [api.ErrUnknownOutcome]. The same holds if the context of Propose or ChangePeers ends.
type Caller struct {
	conn          Conn
	out           *outbox
	frameReceived chan struct{} // receives a value with each frame; has capacity 1
	done          chan struct{} // closed when the connection has ended
	slots         chan struct{} // limits the number of pending calls
	goroutines    sync.WaitGroup

	mu    sync.Mutex
	err   error // why the connection has ended
	last  uint64
	calls map[uint64]*call
}

// call is a pending call.
type call struct {
	request outgoingMessage
	number  uint64
	reply   chan reply // receives the reply, or the error of the connection; has capacity 1
}

// reply is the result of a call. The body is not decoded yet.
type reply struct {
	body []byte
	err  error
}

func (k *call) messageKind() byte { return k.request.frame[0] }

// changesState reports whether the call proposes an update or changes the peers.
func (k *call) changesState() bool {
	return k.messageKind() == msgPropose || k.messageKind() == msgChangePeers
}

// NewCaller returns a Caller that owns conn, until Close.
func NewCaller(conn Conn) *Caller {
	c := &Caller{
		conn: conn, out: newOutbox(), frameReceived: make(chan struct{}, 1), done: make(chan struct{}),
		slots: make(chan struct{}, maxCalls), calls: map[uint64]*call{},
	}
	c.goroutines.Go(func() { c.disconnect(c.out.writeMessages(conn, c.done, func(*outgoingMessage) {})) })
	c.goroutines.Go(func() { c.disconnect(c.receiveReplies()) })
	return c
}

// Done returns a channel that is closed when the connection has ended.
func (c *Caller) Done() <-chan struct{} { return c.done }

// Err returns the reason why the connection has ended, or nil.
func (c *Caller) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close closes the connection and waits for the goroutines. Pending and later calls return
// errors that wrap [api.ErrClosed].
func (c *Caller) Close() error {
	c.disconnect(api.ErrClosed)
	c.goroutines.Wait()
	return nil
}

// disconnect ends the connection. Only the first call has an effect.
func (c *Caller) disconnect(reason error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = fmt.Errorf("%w: %w", ErrLost, reason)
	close(c.done)
	for _, k := range c.calls {
		err := c.err
		if k.changesState() && c.out.isTaken(&k.request) {
			err = withUnknownOutcome(err)
		}
		k.reply <- reply{err: err}
	}
	c.calls = nil
	c.mu.Unlock()
	c.conn.Close() // close without the lock, because Close can block
}

func (c *Caller) receiveReplies() error {
	for {
		frame, err := c.conn.ReadFrame()
		if err != nil {
			return err
		}
		signal(c.frameReceived)
		if len(frame) == 0 {
			continue // an empty frame is the answer to a ping
		}
		if err := c.dispatchReply(frame); err != nil {
			return err
		}
	}
}

// dispatchReply passes a reply to its call. It does not block.
func (c *Caller) dispatchReply(frame []byte) error {
	kind, number, body, err := decodeMessage(frame)
	if err != nil {
		return err
	}
	c.mu.Lock()
	k, last := c.calls[number], c.last
	delete(c.calls, number)
	c.mu.Unlock()
	switch {
	case number == 0 || number > last:
		return wire.Violation("a reply to call %d, which was not made", number)
	case k == nil:
		return nil // the caller of the call does not wait any more
	}
	r := reply{body: body}
	switch kind {
	case msgResult:
	case msgError:
		d := wire.Decoder{B: body}
		r.err = d.Error()
		if err = d.End(); err != nil {
			r.err = err
		}
		// Errors of package api determine the outcome. After other errors it is unknown.
		if k.changesState() && !wire.IsKnown(r.err) {
			r.err = withUnknownOutcome(r.err)
		}
	default:
		err = wire.Violation("a message of kind %d as a reply", kind)
		if r.err = err; k.changesState() {
			r.err = withUnknownOutcome(err)
		}
	}
	k.reply <- r
	return err
}

// Alive reports whether the server answers. It returns immediately if no calls are pending or
// a frame has been received since the last call of Alive. Otherwise it sends a ping. If ctx
// ends before a frame is received, the connection is closed, unless a message is being
// written, which has a separate timeout. It must be called by one goroutine.
func (c *Caller) Alive(ctx context.Context) error {
	c.mu.Lock()
	idle := len(c.calls) == 0
	c.mu.Unlock()
	select {
	case <-c.frameReceived:
		return c.Err()
	default:
	}
	if idle || c.out.isWriting() {
		return c.Err()
	}
	c.out.addPing()
	select {
	case <-c.frameReceived:
	case <-c.done:
	case <-ctx.Done():
		if !c.out.isWriting() {
			c.disconnect(fmt.Errorf("no answer to a ping: %w", context.Cause(ctx)))
		}
	}
	return c.Err()
}

// sendRequest sends the request of a call.
func (c *Caller) sendRequest(ctx context.Context, k *call) error {
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
	defer c.mu.Unlock()
	if c.err != nil {
		<-c.slots
		return c.err
	}
	c.last++
	k.number = c.last
	setNumber(k.request.frame, k.number)
	c.calls[k.number] = k
	c.out.addMessage(&k.request) // add the message with the lock held, so that the numbers of calls increase
	return nil
}

// abandon makes sure that the call receives no reply. It returns inTime = false if a reply has
// been received, and sent = true if the server may have received the request.
func (c *Caller) abandon(k *call) (inTime, sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[k.number] != k {
		return false, true
	}
	delete(c.calls, k.number)
	if c.out.remove(&k.request) {
		return true, false
	}
	c.out.addUrgent(&outgoingMessage{frame: newMessage(msgCancel, k.number, 0)})
	return true, true
}

// withdrawBefore is the maximum time before its deadline at which a change of the peers is withdrawn.
// In this time the server can reply that nothing was changed. Without a reply the outcome is unknown.
const withdrawBefore = time.Second

// withdrawalLimit is the time in which the server must confirm that it has withdrawn a request
// to resign.
const withdrawalLimit = 1500 * time.Millisecond

// requestCancel requests that the server cancels the call if it can. The call still receives a
// reply.
func (c *Caller) requestCancel(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[k.number] == k && c.out.isTaken(&k.request) {
		c.out.addUrgent(&outgoingMessage{frame: newMessage(msgCancel, k.number, 0)})
	}
}

// makeCall makes a call and decodes the result. The frame of the request has no number yet.
func makeCall[T any](ctx context.Context, c *Caller, frame []byte, decode func([]byte) (T, error)) (result T, err error) {
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	k := &call{request: outgoingMessage{frame: frame}, reply: make(chan reply, 1)}
	if err := c.sendRequest(ctx, k); err != nil {
		return result, err
	}
	defer func() { <-c.slots }()
	r := c.awaitReply(ctx, k)
	if r.err != nil {
		return result, r.err
	}
	if result, err = decode(r.body); err != nil {
		c.disconnect(err)
		if k.changesState() {
			err = withUnknownOutcome(err)
		}
	}
	return result, err
}

// awaitReply waits for the reply to a call. When ctx is done, it cancels the call.
func (c *Caller) awaitReply(ctx context.Context, k *call) reply {
	var withdraw <-chan time.Time
	if end, ok := ctx.Deadline(); ok && k.messageKind() == msgChangePeers {
		left := time.Until(end)
		timer := time.NewTimer(left - min(left/4, withdrawBefore))
		defer timer.Stop()
		withdraw = timer.C
	}
	for done := false; !done; {
		select {
		case r := <-k.reply:
			return r
		case <-withdraw:
			c.requestCancel(k)
		case <-ctx.Done():
			done = true
		}
	}
	if k.messageKind() == msgRequestResign {
		c.requestCancel(k)
		limit := time.NewTimer(withdrawalLimit)
		defer limit.Stop()
		select {
		case r := <-k.reply:
			return r
		case <-limit.C:
		}
	}
	inTime, sent := c.abandon(k)
	if !inTime {
		return <-k.reply
	}
	err := context.Cause(ctx)
	if sent && (k.changesState() || k.messageKind() == msgRequestResign) {
		err = withUnknownOutcome(err)
	}
	return reply{err: err}
}

// Propose implements [Service]. data may be modified after it has returned.
func (c *Caller) Propose(ctx context.Context, id api.RequestID, data []byte) (uint64, error) {
	if len(data) > wire.MaxData {
		return 0, fmt.Errorf("%w: %d bytes exceed the limit of %d", api.ErrTooLarge, len(data), wire.MaxData)
	}
	frame := newMessage(msgPropose, 0, len(id)+len(data))
	return makeCall(ctx, c, append(append(frame, id[:]...), data...), decodeIndex)
}

// ChangePeers implements [Service]. If ctx has a deadline, the server is requested before it to
// cancel a change that has not begun, so that the error is [api.ErrBusy] instead of unknown.
func (c *Caller) ChangePeers(ctx context.Context, id api.RequestID, voters []api.Peer) (uint64, error) {
	if err := wire.CheckPeers(voters...); err != nil {
		return 0, err
	}
	frame := append(newMessage(msgChangePeers, 0, 0), id[:]...)
	return makeCall(ctx, c, wire.AppendPeers(frame, voters), decodeIndex)
}

// Membership implements [Service].
func (c *Caller) Membership(ctx context.Context) (api.Membership, error) {
	return makeCall(ctx, c, newMessage(msgMembership, 0, 0), decodeMembership)
}

// Info implements [Service].
func (c *Caller) Info(ctx context.Context) (api.Info, error) {
	return makeCall(ctx, c, newMessage(msgInfo, 0, 0), decodeInfo)
}

// Election implements [Service].
func (c *Caller) Election(ctx context.Context, name string) (api.Election, error) {
	frame, err := newRequest(msgElection, name)
	if err != nil {
		return api.Election{}, err
	}
	return makeCall(ctx, c, frame, decodeElection)
}

// RequestResign implements [Service]. When ctx is done, it requests that the server withdraws the
// request. If the server does not confirm that within withdrawalLimit, the error wraps
// [api.ErrUnknownOutcome].
func (c *Caller) RequestResign(ctx context.Context, name, candidate string) error {
	frame, err := newRequest(msgRequestResign, name, candidate)
	if err == nil {
		_, err = makeCall(ctx, c, frame, decodeEmpty)
	}
	return err
}

// newRequest returns the frame of a request that contains names, such as that of an election.
func newRequest(kind byte, names ...string) ([]byte, error) {
	frame := newMessage(kind, 0, 0)
	for _, name := range names {
		if len(name) > maxName {
			return nil, fmt.Errorf("%w: a name of %d bytes exceeds the limit of %d", api.ErrInvalid, len(name), maxName)
		}
		frame = wire.AppendString(frame, name)
	}
	return frame, nil
}
