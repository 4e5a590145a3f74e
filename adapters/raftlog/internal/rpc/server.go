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
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

const (
	// maxCalls is the maximum number of pending calls of one connection. A call is pending
	// until its reply is about to be written.
	maxCalls = 1 << 10
	// maxPending is the maximum size of the pending updates of one connection.
	maxPending = 2 * wire.MaxData
	// maxStreams is the maximum number of streams of one client.
	maxStreams = 64
)

// Server serves clients. Its methods may be called concurrently.
type Server struct {
	service Service

	mu      sync.Mutex
	streams map[string]int // by the ID of the client
}

// NewServer returns a server that calls service.
func NewServer(service Service) *Server {
	return &Server{service: service, streams: map[string]int{}}
}

// serveConn closes conn when ctx is done, and calls serve with a context that serve can cancel. It
// returns the cause, or nil if the client has closed the connection. All goroutines of
// goroutines have ended when it returns.
func serveConn(ctx context.Context, conn Conn, goroutines *sync.WaitGroup, serve func(context.Context, context.CancelCauseFunc) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	goroutines.Go(func() {
		<-ctx.Done()
		conn.Close()
	})
	cancel(serve(ctx, cancel)) // does nothing if ctx is done
	goroutines.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, io.EOF) {
		return fmt.Errorf("serving a client: %w", cause)
	}
	return nil
}

// Calls serves the calls on a connection until it ends or ctx is done. Then it closes the
// connection, cancels the contexts of pending calls, and waits for them. It returns nil if the
// client has closed the connection. Other errors wrap [wire.ErrProtocol], the cause of ctx, or
// the error of the connection.
func (s *Server) Calls(ctx context.Context, conn Conn) error {
	v := &callServer{
		conn: conn, service: s.service, out: newOutbox(),
		slots: make(chan struct{}, maxCalls), calls: map[uint64]context.CancelFunc{},
	}
	return serveConn(ctx, conn, &v.goroutines, func(ctx context.Context, cancel context.CancelCauseFunc) error {
		v.goroutines.Go(func() {
			if err := v.out.writeMessages(conn, ctx.Done(), func() { <-v.slots }); err != nil {
				cancel(err)
			}
		})
		return v.readRequests(ctx)
	})
}

// callServer serves the calls of one connection.
type callServer struct {
	conn       Conn
	service    Service
	out        *outbox
	goroutines sync.WaitGroup
	slots      chan struct{} // limits the number of pending calls
	pending    atomic.Int64  // size of pending updates
	frames     atomic.Int64  // number of received frames

	mu    sync.Mutex
	calls map[uint64]context.CancelFunc
}

func (v *callServer) readRequests(ctx context.Context) error {
	var last uint64
	for {
		frame, err := v.conn.ReadFrame()
		if err != nil {
			return err
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
			v.cancelCall(number)
			continue
		}
		if number <= last {
			return wire.Violation("call %d follows call %d", number, last)
		}
		last = number
		call, err := v.decodeCall(kind, body)
		if err != nil {
			return err
		}
		if err := v.startCall(ctx, number, call); err != nil {
			return err
		}
	}
}

func (v *callServer) cancelCall(number uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if cancel := v.calls[number]; cancel != nil {
		cancel()
	}
}

// decodeCall returns a function that executes a request and returns the body of its result.
func (v *callServer) decodeCall(kind byte, body []byte) (func(context.Context) ([]byte, error), error) {
	switch kind {
	case msgPropose:
		id, data, err := decodePropose(body)
		if err != nil {
			return nil, err
		}
		return v.newProposal(id, data), nil
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
	case msgAskToResign:
		names, err := decodeNames(body, 2)
		return func(ctx context.Context) ([]byte, error) {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			v.goroutines.Go(func() { v.awaitSilence(ctx, cancel) })
			return nil, v.service.AskToResign(ctx, names[0], names[1])
		}, err
	}
	return nil, wire.Violation("a call of kind %d", kind)
}

// newProposal returns a function that proposes an update. Until the function has returned, the
// update is a part of pending.
func (v *callServer) newProposal(id requestid.ID, data []byte) func(context.Context) ([]byte, error) {
	size := int64(len(data))
	if v.pending.Add(size) > maxPending {
		v.pending.Add(-size)
		return func(context.Context) ([]byte, error) {
			return nil, fmt.Errorf("%w: the updates in progress of one client have more than %d bytes", api.ErrBusy, maxPending)
		}
	}
	return func(ctx context.Context) ([]byte, error) {
		defer v.pending.Add(-size)
		index, err := v.service.Propose(ctx, id, data)
		return encodeIndex(index), err
	}
}

// silenceLimit is the interval at which it is checked whether a client that waits for a
// candidate to resign has sent a frame. Such a client sends pings much more often.
const silenceLimit = 20 * time.Second

var errClientSilent = errors.New("the client is silent")

// awaitSilence cancels a call if no frame is received between two checks. It returns when ctx
// is done.
func (v *callServer) awaitSilence(ctx context.Context, cancel context.CancelCauseFunc) {
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

// startCall executes a call in a new goroutine. It waits while too many calls are pending.
func (v *callServer) startCall(ctx context.Context, number uint64, call func(context.Context) ([]byte, error)) error {
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
		v.mu.Lock()
		delete(v.calls, number)
		v.mu.Unlock()
		var frame []byte
		if err != nil {
			frame = wire.AppendError(newMessage(msgError, number, 64), err)
		} else {
			frame = append(newMessage(msgResult, number, len(body)), body...)
		}
		v.out.addMessage(&outgoing{frame: frame})
	})
	return nil
}
