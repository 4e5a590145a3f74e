package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// Caller makes the calls of a [Service] at the other end of a connection, except for those that return
// streams. Several goroutines may call its methods concurrently.
//
// If the connection is lost, pending calls return errors that wrap [ErrLost]. If a pending call changes
// something and its request may have been sent, the error also wraps [api.ErrUnknownOutcome]. The same
// holds if the context of Propose or ChangePeers ends.
type Caller struct {
	conn          Conn
	out           *outbox
	frameReceived chan struct{} // receives a value whenever a frame arrives; has capacity 1
	done          chan struct{} // closed when the connection has ended
	slots         chan struct{} // contains a value for each pending call, which limits their number
	goroutines    sync.WaitGroup

	mu    sync.Mutex
	err   error // why the connection has ended; nil before that
	last  uint64
	calls map[uint64]*call
}

// call is a call that waits for its reply.
type call struct {
	request outgoingMessage
	number  uint64
	reply   chan reply // receives the reply, or the error of the connection; has capacity 1
}

// reply is the result of a call, with the encoded body.
type reply struct {
	body []byte
	err  error
}

func (k *call) messageKind() byte { return k.request.frame[0] }

// changesState reports whether the call proposes an update or changes the peers. If no reply arrives, the
// outcome of such a call is unknown.
func (k *call) changesState() bool {
	return k.messageKind() == msgPropose || k.messageKind() == msgChangePeers
}

// NewCaller returns a Caller that makes calls on conn, and owns conn until Close.
func NewCaller(conn Conn) *Caller {
	c := &Caller{
		conn: conn, out: newOutbox(), frameReceived: make(chan struct{}, 1), done: make(chan struct{}),
		slots: make(chan struct{}, maxCalls), calls: map[uint64]*call{},
	}
	c.goroutines.Go(func() { c.disconnect(c.out.writeMessages(conn, c.done, func(*outgoingMessage) {})) })
	c.goroutines.Go(func() { c.disconnect(c.receiveReplies()) })
	return c
}

// Done returns a channel that is closed when the connection of the Caller has ended.
func (c *Caller) Done() <-chan struct{} { return c.done }

// Err returns the reason why the connection of the Caller has ended, or nil.
func (c *Caller) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close closes the connection and waits for the goroutines of the Caller. Pending and later calls
// return errors that wrap [api.ErrClosed].
func (c *Caller) Close() error {
	c.disconnect(api.ErrClosed)
	c.goroutines.Wait()
	return nil
}

// disconnect ends the connection because of the given reason. Later calls of disconnect have no effect.
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
	c.conn.Close() // without the lock, because Close can block
}

func (c *Caller) receiveReplies() error {
	for {
		frame, err := c.conn.ReadFrame()
		if err != nil {
			return err
		}
		signal(c.frameReceived)
		if len(frame) == 0 {
			continue // an empty frame is the server's answer to a ping
		}
		if err := c.dispatchReply(frame); err != nil {
			return err
		}
	}
}

// dispatchReply passes a received reply to the call that waits for it. It does not block.
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
		return wire.Violation("the server has replied to call %d, which this client has not made", number)
	case k == nil:
		return nil // no call waits for this reply any more
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
		// Errors of package api say whether the call has taken effect. After any other error this is
		// unknown.
		if k.changesState() && !wire.IsKnown(r.err) {
			r.err = withUnknownOutcome(r.err)
		}
	default:
		err = wire.Violation("a reply cannot have kind %d", kind)
		if r.err = err; k.changesState() {
			r.err = withUnknownOutcome(err)
		}
	}
	k.reply <- r
	return err
}

// Alive returns an error if the connection has ended or the server does not answer. It returns immediately
// if no calls are pending, if a frame has arrived since the previous call of Alive, or while a message is
// being written, which has its own timeout. Otherwise it sends a ping. If ctx ends before a frame arrives,
// Alive closes the connection, unless a message is being written by then. Only one goroutine may call Alive.
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
			c.disconnect(fmt.Errorf("the server has not answered a ping: %w", context.Cause(ctx)))
		}
	}
	return c.Err()
}

// sendRequest sends the request of a call, when there are not too many pending calls.
func (c *Caller) sendRequest(ctx context.Context, k *call) error {
	select {
	case c.slots <- struct{}{}:
	default:
		select {
		case c.slots <- struct{}{}:
		case <-c.done:
			return c.Err()
		case <-ctx.Done():
			return fmt.Errorf("wait until one of %d calls in progress ends: %w", maxCalls, context.Cause(ctx))
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
	c.out.addMessage(&k.request) // while the lock is held, so that the numbers of the calls increase on the connection
	return nil
}

// abandon stops waiting for the reply to a call, and cancels the call on the server. inTime is false if the
// reply has already arrived. sent is true if the server may have received the request.
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

// withdrawBefore is the maximum time before its deadline at which the Caller withdraws a change of the
// peers. In this time the server can reply that nothing was changed. Without a reply, the outcome would
// be unknown.
const withdrawBefore = time.Second

// withdrawalLimit is the time in which the server must confirm that it has withdrawn a request to
// resign.
const withdrawalLimit = 1500 * time.Millisecond

// requestCancel asks the server to cancel a call if it still can. The call still receives a reply.
func (c *Caller) requestCancel(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[k.number] == k && c.out.isTaken(&k.request) {
		c.out.addUrgent(&outgoingMessage{frame: newMessage(msgCancel, k.number, 0)})
	}
}

// makeCall makes a call, waits for the reply, and decodes its body. frame is the request, whose number
// makeCall sets.
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

// awaitReply waits for the reply to a call. When ctx is done, it cancels the call and returns the
// cause.
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

// Propose implements [Service]. The caller may modify data after Propose has returned.
func (c *Caller) Propose(ctx context.Context, id api.RequestID, data []byte) (uint64, error) {
	if len(data) > wire.MaxData {
		return 0, fmt.Errorf("%w: %d bytes exceed the limit of %d", api.ErrTooLarge, len(data), wire.MaxData)
	}
	frame := newMessage(msgPropose, 0, len(id)+len(data))
	return makeCall(ctx, c, append(append(frame, id[:]...), data...), decodeIndex)
}

// ChangePeers implements [Service]. If ctx has a deadline, ChangePeers asks the server before the
// deadline to cancel the change if it has not begun, so that the error is [api.ErrBusy] and not an
// unknown outcome.
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

// RequestResign implements [Service]. When ctx is done, it asks the server to withdraw the request. If
// the server does not confirm the withdrawal within withdrawalLimit, the error wraps
// [api.ErrUnknownOutcome].
func (c *Caller) RequestResign(ctx context.Context, name, candidate string) error {
	frame, err := newRequest(msgRequestResign, name, candidate)
	if err == nil {
		_, err = makeCall(ctx, c, frame, decodeEmpty)
	}
	return err
}

// newRequest returns the frame of a request whose body consists of names, for example the name of an
// election.
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
