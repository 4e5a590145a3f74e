package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

const (
	// maxCalls is the maximum number of pending calls of one connection. A call is pending until its
	// reply was written. The server does not read from a connection with so many pending calls.
	maxCalls = 1 << 10
)

// Server serves the calls and streams of clients. Several goroutines may call its methods concurrently.
type Server struct {
	service    Service
	usage      usage
	rejections chan struct{} // contains a value for each connection that the server is rejecting
}

// NewServer returns a Server that serves the methods of service.
func NewServer(service Service) *Server {
	return &Server{service: service, usage: usage{addresses: map[string]load{}}, rejections: make(chan struct{}, maxRejections)}
}

// serveConn calls serve with a context that is derived from ctx and that serve can cancel, and closes conn
// when this context is done. It returns the cause of the context, or nil if the client has closed the
// connection. It returns only after all goroutines of the WaitGroup have ended.
func serveConn(ctx context.Context, conn Conn, goroutines *sync.WaitGroup, serve func(context.Context, context.CancelCauseFunc) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	goroutines.Go(func() {
		<-ctx.Done()
		conn.Close()
	})
	cancel(serve(ctx, cancel)) // has no effect if ctx is already done
	goroutines.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, io.EOF) {
		return fmt.Errorf("serving a client: %w", cause)
	}
	return nil
}

// Calls serves the calls on a connection from an address. It ends when the connection ends, the client has sent
// nothing for callsIdle, or ctx is done. Then it closes the connection, cancels the contexts of pending calls, and
// waits for them. It returns nil if the client has closed the connection. Other errors wrap [wire.ErrProtocol], the
// cause of ctx, [api.ErrBusy] if the client exceeds a limit of connections, or the error of the connection.
func (s *Server) Calls(ctx context.Context, conn Conn, address string) error {
	client, busy := s.usage.addClient(address, load{conns: 1})
	defer client.close()
	conn.SetTimeouts(callsIdle, callsStall)
	if busy != nil {
		return s.reject(ctx, conn, busy, func(request []byte) []byte {
			_, number, _, err := decodeMessage(request)
			if err != nil {
				return nil
			}
			return wire.AppendError(newMessage(msgError, number, 64), busy)
		})
	}
	conn.LimitFrames(client.frameLimits())
	v := &callServer{
		conn: conn, client: client, service: s.service, out: newOutbox(),
		slots: make(chan struct{}, maxCalls), calls: map[uint64]context.CancelFunc{},
	}
	return serveConn(ctx, conn, &v.goroutines, func(ctx context.Context, cancel context.CancelCauseFunc) error {
		v.goroutines.Go(func() {
			if err := v.out.writeMessages(conn, ctx.Done(), v.replyWritten); err != nil {
				cancel(err)
			}
		})
		return v.readRequests(ctx)
	})
}

// reject answers the first request on a connection with an error, closes the connection, and returns the
// reason. The function reply returns the frame of the answer, or nil if the request is invalid.
func (s *Server) reject(ctx context.Context, conn Conn, reason error, reply func(request []byte) []byte) error {
	select {
	case s.rejections <- struct{}{}:
		defer func() { <-s.rejections }()
	default:
		conn.Close()
		return reason
	}
	ctx, cancel := context.WithTimeoutCause(ctx, rejectLimit, reason)
	defer cancel()
	var none sync.WaitGroup
	return serveConn(ctx, conn, &none, func(context.Context, context.CancelCauseFunc) error {
		conn.LimitFrames(link.FrameLimits{Max: maxRejected})
		request, err := conn.ReadFrame()
		if err != nil {
			return reason
		}
		if frame := reply(request); frame != nil && conn.Buffer(frame) == nil && conn.Flush() == nil {
			_, _ = conn.ReadFrame() // wait until the client closes the connection, or rejectLimit has passed
		}
		return reason
	})
}

// callServer serves the calls on one connection.
type callServer struct {
	conn       Conn
	client     *client
	service    Service
	out        *outbox
	goroutines sync.WaitGroup
	slots      chan struct{} // contains a value for each pending call, which limits their number
	frames     atomic.Int64  // the number of frames that the client has sent

	mu    sync.Mutex
	calls map[uint64]context.CancelFunc
}

func (v *callServer) readRequests(ctx context.Context) error {
	var last uint64
	for {
		frame, busy := v.conn.ReadFrame()
		if busy != nil && frame == nil {
			return busy
		}
		v.frames.Add(1)
		if len(frame) == 0 {
			v.out.addPing()
			continue
		}
		kind, number, body, err := decodeMessage(frame)
		if err != nil {
			return err
		}
		if kind == msgCancel {
			if len(body) > 0 {
				return wire.Violation("a cancellation with %d bytes more than the number of the call", len(body))
			}
			v.cancelCall(number)
			continue
		}
		if number <= last {
			return wire.Violation("call %d was received after call %d: the numbers of calls must increase", number, last)
		}
		last = number
		more := load{calls: 1}
		if busy == nil {
			if len(frame) <= freeFrame { // ReadFrame has already reserved memory for a larger frame
				busy = v.client.addLoad(load{memory: int64(len(frame))})
			}
			if busy == nil {
				more.memory = int64(len(frame))
				if busy = v.client.addLoad(load{calls: 1}); busy != nil {
					v.client.release(load{memory: more.memory})
				}
			}
		}
		call := func(context.Context) ([]byte, error) { return nil, busy }
		if busy != nil {
			more = load{}
		} else if call, err = v.decodeCall(kind, body); err != nil {
			return err
		}
		if err := v.startCall(ctx, number, more, call); err != nil {
			return err
		}
	}
}

// cancelCall cancels the context of the pending call with the given number, if there is one.
func (v *callServer) cancelCall(number uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if cancel := v.calls[number]; cancel != nil {
		cancel()
	}
}

// decodeCall decodes a request. It returns a function that executes the call and returns the body of
// its result.
func (v *callServer) decodeCall(kind byte, body []byte) (func(context.Context) ([]byte, error), error) {
	switch kind {
	case msgPropose:
		id, data, err := decodePropose(body)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) ([]byte, error) {
			index, err := v.service.Propose(ctx, id, data)
			return encodeIndex(index), err
		}, nil
	case msgChangePeers:
		id, voters, err := decodeChangePeers(body)
		return func(ctx context.Context) ([]byte, error) {
			index, err := v.service.ChangePeers(ctx, id, voters)
			return encodeIndex(index), err
		}, err
	case msgMembership:
		_, err := decodeEmpty(body)
		return func(ctx context.Context) ([]byte, error) {
			m, err := v.service.Membership(ctx)
			if err == nil {
				err = wire.CheckMembership(m)
			}
			return wire.AppendMembership(nil, m), err
		}, err
	case msgInfo:
		_, err := decodeEmpty(body)
		return func(ctx context.Context) ([]byte, error) {
			info, err := v.service.Info(ctx)
			if err == nil {
				err = wire.CheckPeers(info.Peer, info.Leader)
			}
			return encodeInfo(info), err
		}, err
	case msgElection:
		names, err := decodeNames(body, 1)
		return func(ctx context.Context) ([]byte, error) {
			e, err := v.service.Election(ctx, names[0])
			result := encodeElection(e)
			if err == nil && len(result) > maxResult {
				err = fmt.Errorf("%w: the list of the candidates has %d bytes, the limit is %d", api.ErrTooLarge, len(result), maxResult)
			}
			return result, err
		}, err
	case msgRequestResign:
		names, err := decodeNames(body, 2)
		return func(ctx context.Context) ([]byte, error) {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			v.goroutines.Go(func() { v.cancelIfSilent(ctx, cancel) })
			return nil, v.service.RequestResign(ctx, names[0], names[1])
		}, err
	}
	return nil, wire.Violation("unknown kind of call: %d", kind)
}

// silenceLimit is the interval at which the server checks that a client which waits for a candidate to
// resign has sent a frame. Such a client sends pings much more often.
const silenceLimit = 20 * time.Second

var errClientSilent = errors.New("the client has sent nothing for too long")

// cancelIfSilent calls cancel if the client sends no frame within silenceLimit. It returns then, or when ctx
// is done.
func (v *callServer) cancelIfSilent(ctx context.Context, cancel context.CancelCauseFunc) {
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
			cancel(errClientSilent)
			return
		}
	}
}

// startCall executes a call in a new goroutine. It first waits while too many calls are pending. The load
// occupied is released when the call has returned.
func (v *callServer) startCall(ctx context.Context, number uint64, occupied load, call func(context.Context) ([]byte, error)) error {
	select {
	case v.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	v.mu.Lock()
	v.calls[number] = cancel
	v.mu.Unlock()
	v.goroutines.Go(func() {
		defer cancel()
		body, err := call(ctx)
		v.client.release(occupied)
		v.mu.Lock()
		delete(v.calls, number)
		v.mu.Unlock()
		var m outgoingMessage
		if err == nil && len(body) > freeReply {
			// A large result may be rejected, because only calls that change nothing have large
			// results.
			if err = v.client.addLoad(load{memory: int64(len(body))}); err == nil {
				m.reserved = int64(len(body))
			}
		}
		if err != nil {
			m.frame = wire.AppendError(newMessage(msgError, number, 64), err)
		} else {
			m.frame = append(newMessage(msgResult, number, len(body)), body...)
		}
		v.out.addMessage(&m)
	})
	return nil
}

// replyWritten releases the load that a reply has occupied, and the slot of its call.
func (v *callServer) replyWritten(m *outgoingMessage) {
	<-v.slots
	v.client.release(load{memory: m.reserved})
}
