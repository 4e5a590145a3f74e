package rpc

// The server's side of a connection: reads requests, and has each done by a goroutine of
// its own.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

const (
	// maxCalls is how many calls of one connection are under way at once: until their last
	// message is about to be written.
	maxCalls = 1 << 10
	// maxStreams is how many of them may be streams.
	maxStreams = 64
	// maxPending is how many bytes their updates may have together.
	maxPending = 2 * wire.MaxData
)

// Serve does what the caller at the other end of stream asks for, by s, until the connection
// ends or ctx does; then it closes the stream, cancels the contexts of calls under way, and
// returns when all its goroutines have ended. A connection that the caller has closed is no
// error; others wrap [wire.ErrProtocol], the context's cause, or the stream's error.
func Serve(ctx context.Context, stream Stream, s Service) error {
	ctx, cancel := context.WithCancelCause(ctx)
	v := &server{
		stream: stream, service: s, out: newOutbox(),
		slots: make(chan struct{}, maxCalls), calls: map[uint64]*serving{},
	}
	v.goroutines.Go(func() {
		<-ctx.Done()
		stream.Close()
	})
	err := v.read(ctx, cancel)
	cancel(err) // the first cause stays
	v.goroutines.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, io.EOF) {
		return fmt.Errorf("serving calls of a client: %w", cause)
	}
	return nil
}

type server struct {
	stream     Stream
	service    Service
	out        *outbox
	goroutines sync.WaitGroup
	slots      chan struct{} // one token a call
	streams    atomic.Int64
	pending    atomic.Int64 // bytes of updates
	frames     atomic.Int64 // received

	mu    sync.Mutex
	calls map[uint64]*serving
}

// serving is a call under way.
type serving struct {
	cancel context.CancelFunc
	credit *credit // of streams
}

func (v *server) read(ctx context.Context, cancel context.CancelCauseFunc) error {
	frame, err := v.stream.ReadFrame()
	if err != nil {
		return err
	}
	// The answer goes to callers of other versions as well: they learn which this one is.
	bad := checkHello(frame)
	if err := v.stream.WriteFrame(hello()); err != nil {
		return err
	}
	if bad != nil {
		return bad
	}
	v.goroutines.Go(func() {
		if err := v.write(ctx); err != nil {
			cancel(err)
		}
	})
	var last uint64
	for {
		frame, err := v.stream.ReadFrame()
		if err != nil {
			return err
		}
		if len(frame) > maxFrame {
			return wire.Violation("a frame of %d bytes", len(frame))
		}
		v.frames.Add(1)
		for d := (wire.Decoder{B: frame}); len(d.B) > 0; {
			m := next(&d)
			if d.Err != nil {
				return d.Err
			}
			if beginsCall(m.kind) {
				if m.call <= last {
					return wire.Violation("call %d comes after call %d", m.call, last)
				}
				last = m.call
			}
			if err := v.handle(ctx, m); err != nil {
				return err
			}
		}
	}
}

func (v *server) write(ctx context.Context) error {
	for {
		runtime.Gosched() // calls that are about to end go with the same frame
		f := v.out.take()
		if len(f.b) == 0 {
			select {
			case <-v.out.wake:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		for range f.ends {
			<-v.slots
		}
		if err := v.stream.WriteFrame(f.b); err != nil {
			return err
		}
		v.out.giveBack(f.b)
	}
}

// handle begins what a message asks for. It waits only for a place among the calls, of
// which callers keep count themselves.
func (v *server) handle(ctx context.Context, m message) error {
	switch m.kind {
	case msgPropose:
		id, data, err := decodePropose(m.body)
		if err != nil {
			return err
		}
		return v.proposal(ctx, m.call, id, data)
	case msgChangePeers:
		id, voters, err := decodeChangePeers(m.body)
		if err != nil {
			return err
		}
		return v.begin(ctx, m.call, nil, func(ctx context.Context) {
			index, err := v.service.ChangePeers(ctx, id, voters)
			v.result(m.call, err, func(b []byte) []byte { return appendIndex(b, index) })
		})
	case msgMembership:
		return v.begin(ctx, m.call, nil, func(ctx context.Context) {
			members, err := v.service.Membership(ctx)
			if err == nil {
				err = wire.CheckMembership(members)
			}
			v.result(m.call, err, func(b []byte) []byte { return wire.AppendMembership(b, members) })
		})
	case msgInfo:
		return v.begin(ctx, m.call, nil, func(ctx context.Context) {
			info, err := v.service.Info(ctx)
			if err == nil {
				err = wire.CheckPeers(info.Peer, info.Leader)
			}
			v.result(m.call, err, func(b []byte) []byte { return appendInfo(b, info) })
		})
	case msgElection:
		return v.about(ctx, m, 1, func(ctx context.Context, names []string) ([]byte, error) {
			e, err := v.service.Election(ctx, names[0])
			result := appendElection(nil, e)
			if err == nil && len(result) > maxResult {
				err = fmt.Errorf("%w: the list of the candidates has %d bytes, the limit is %d", api.ErrTooLarge, len(result), maxResult)
			}
			return result, err
		})
	case msgAskToResign:
		return v.about(ctx, m, 2, func(ctx context.Context, names []string) ([]byte, error) {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			v.goroutines.Go(func() { v.awaitSilence(ctx, cancel) })
			return nil, v.service.AskToResign(ctx, names[0], names[1])
		})
	case msgEntries:
		from, g, err := decodeEntries(m.body)
		if err != nil {
			return err
		}
		return v.beginStream(ctx, m.call, g, func(ctx context.Context, c *credit) error {
			return v.entries(ctx, m.call, c, from)
		})
	case msgSnapshot:
		g, err := decodeGrant(m.body)
		if err != nil {
			return err
		}
		return v.beginStream(ctx, m.call, g, func(ctx context.Context, c *credit) error {
			return v.snapshot(ctx, m.call, c)
		})
	case msgCancel:
		v.mu.Lock()
		c := v.calls[m.call]
		v.mu.Unlock()
		if c != nil {
			c.cancel()
		}
		return nil
	case msgGrant:
		g, err := decodeGrant(m.body)
		if err != nil {
			return err
		}
		v.mu.Lock()
		c := v.calls[m.call]
		v.mu.Unlock()
		if c == nil || c.credit == nil {
			return nil // it has ended meanwhile
		}
		return c.credit.add(g)
	case msgPing:
		v.out.setPong(m.call)
		return nil
	}
	return wire.Violation("a message of kind %d", m.kind)
}

// beginsCall reports whether a message begins a call, and has a number that no message before
// it had.
func beginsCall(kind byte) bool {
	return kind <= msgSnapshot || kind >= msgElection && kind <= msgAskToResign
}

// about begins a call that has count names and ends with the result of f.
func (v *server) about(ctx context.Context, m message, count int, f func(ctx context.Context, names []string) ([]byte, error)) error {
	names, err := decodeNames(m.body, count)
	if err != nil {
		return err
	}
	return v.begin(ctx, m.call, nil, func(ctx context.Context) {
		result, err := f(ctx, names)
		v.result(m.call, err, func(b []byte) []byte { return append(b, result...) })
	})
}

// silenceLimit is the time without a frame after which a caller does not wait for calls any more.
// A caller that waits sends pings much more often.
const silenceLimit = 20 * time.Second

var errSilent = errors.New("the caller is silent")

// awaitSilence cancels a call if the caller sends nothing for silenceLimit. It returns when ctx is
// done.
func (v *server) awaitSilence(ctx context.Context, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(silenceLimit)
	defer ticker.Stop()
	for {
		before := v.frames.Load()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if v.frames.Load() == before {
			cancel(errSilent)
			return
		}
	}
}

// begin has do run in a goroutine, with a context that ends by a cancel of the call. do adds
// the call's last message.
func (v *server) begin(ctx context.Context, call uint64, c *credit, do func(context.Context)) error {
	select {
	case v.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	v.mu.Lock()
	v.calls[call] = &serving{cancel: cancel, credit: c}
	v.mu.Unlock()
	v.goroutines.Go(func() {
		defer cancel()
		do(ctx)
	})
	return nil
}

func (v *server) proposal(ctx context.Context, call uint64, id requestid.ID, data []byte) error {
	size := int64(len(data))
	if v.pending.Add(size) > maxPending {
		v.pending.Add(-size)
		return v.begin(ctx, call, nil, func(context.Context) {
			v.result(call, fmt.Errorf("%w: the updates in progress of one client have more than %d bytes", api.ErrBusy, maxPending), nil)
		})
	}
	data = append(make([]byte, 0, size), data...)
	return v.begin(ctx, call, nil, func(ctx context.Context) {
		index, err := v.service.Propose(ctx, id, data)
		v.pending.Add(-size)
		v.result(call, err, func(b []byte) []byte { return appendIndex(b, index) })
	})
}

// result ends a call.
func (v *server) result(call uint64, err error, body func([]byte) []byte) {
	v.mu.Lock()
	delete(v.calls, call)
	v.mu.Unlock()
	v.out.add(true, func(b []byte) []byte {
		if err != nil {
			return appendMessage(b, msgError, call, func(b []byte) []byte { return wire.AppendError(b, err) })
		}
		return appendMessage(b, msgResult, call, body)
	})
}
