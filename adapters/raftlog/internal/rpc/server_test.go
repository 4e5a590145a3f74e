package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// serveOn serves one connection, for a stream or for calls, by a new server. It returns the other end of
// the connection, and a channel that receives the error of the server.
func serveOn(ctx context.Context, stream bool) (near *rpctest.End, served chan error) {
	near, far := rpctest.Pipe()
	server := rpc.NewServer(rpctest.New(peerA).Peer(peerA))
	serve := server.Calls
	if stream {
		serve = server.Stream
	}
	served = make(chan error, 1)
	go func() { served <- serve(ctx, far, "client") }()
	return near, served
}

// TestServer_ReturnsErrorIfClientViolatesProtocol checks that Calls and Stream return ErrProtocol when the client
// violates the protocol.
func TestServer_ReturnsErrorIfClientViolatesProtocol(t *testing.T) {
	calls := map[string][][]byte{
		"other service":          {[]byte("GET / HTTP/1.1\r\n")},
		"incomplete message":     {{1}},
		"unknown kind":           {callFrame(31, 1)},
		"call number 0":          {callFrame(4, 0)},
		"same number twice":      {callFrame(4, 7), callFrame(4, 7)},
		"name too long":          {callFrame(5, 1, append([]byte{0x81, 0x10}, make([]byte, 2049)...)...)},
		"resign without an ID":   {callFrame(6, 1, 1, 'x')},
		"short request ID":       {callFrame(1, 1, 0, 0, 0)},
		"request of a stream":    {callFrame(32, 1)},
		"cancellation with data": {callFrame(7, 1, 1)},
	}
	streams := map[string][][]byte{
		"call":                     {callFrame(1, 1)},
		"ping before the request":  {{}},
		"entries without an index": {{32}},
		"index and more":           {{32, 1, 1}},
		"snapshot with an index":   {{33, 1}},
		"second request":           {{32, 1}, {32, 1}},
		"large index":              {append([]byte{32}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1)},
		"reply of a server":        {{17, 0, 0, 0, 0}},
		"other protocol":           {[]byte("GET / HTTP/1.1\r\n")},
		"call of Membership":       {callFrame(3, 1)},
	}
	for stream, messages := range map[bool]map[string][][]byte{false: calls, true: streams} {
		for name, frames := range messages {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					near, served := serveOn(t.Context(), stream)
					go func() { _, _ = near.ReadFrame() }()
					for _, frame := range frames {
						require.NoError(t, near.WriteFrame(frame))
					}
					require.ErrorIs(t, <-served, wire.ErrProtocol)
				})
			})
		}
	}
}

// fuzzServer sends arbitrary frames to a server. The server must end because the connection was closed,
// or with a protocol error.
func fuzzServer(f *testing.F, stream bool) {
	f.Fuzz(func(t *testing.T, frame []byte) {
		near, served := serveOn(t.Context(), stream)
		_ = near.WriteFrame(frame)
		near.Close()
		if err := <-served; err != nil && !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, link.ErrFrameTooLarge) {
			require.ErrorIs(t, err, wire.ErrProtocol)
		}
	})
}

func FuzzCalls(f *testing.F) {
	for kind := range byte(9) {
		f.Add(callFrame(kind, 1, 1, 100))
	}
	fuzzServer(f, false)
}

func FuzzStream(f *testing.F) {
	f.Add([]byte{32, 1})
	f.Add([]byte{33})
	fuzzServer(f, true)
}

// TestServer_EndsStreamOfSilentClient checks that the server ends a stream when its client has sent
// nothing for long.
func TestServer_EndsStreamOfSilentClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, served := serveOn(t.Context(), true)
		require.NoError(t, near.WriteFrame([]byte{32, 1})) // requests a stream of entries
		require.ErrorIs(t, <-served, os.ErrDeadlineExceeded)
	})
}

// TestServer_LimitsStreams checks that the server rejects a stream that exceeds the limit of an address,
// and still serves calls and other addresses.
func TestServer_LimitsStreams(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		for i := range 65 {
			events := h.requestEntries(t.Context(), 1)
			defer events.Close()
			_, err := events.Next()
			if i < 64 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, api.ErrBusy)
			}
		}
		_, err := h.caller.Info(t.Context())
		require.NoError(t, err)
		near, far := rpctest.Pipe()
		h.streams.Go(func() { _ = h.server.Stream(h.ctx, far, "other") })
		other := rpc.Entries(t.Context(), near, 1, 0)
		defer other.Close()
		_, err = other.Next()
		require.NoError(t, err)
	})
}

// TestServer_LimitsConnections checks that the server limits the number of connections, and that a
// connection that exceeds the limit receives the reason and is closed.
func TestServer_LimitsConnections(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		connect := func(address string) *rpc.Caller {
			near, far := rpctest.Pipe()
			h.streams.Go(func() { _ = h.server.Calls(h.ctx, far, address) })
			caller := rpc.NewCaller(near)
			t.Cleanup(func() { caller.Close() })
			return caller
		}
		callers := []*rpc.Caller{h.caller}
		for range 255 {
			callers = append(callers, connect("client"))
		}
		synctest.Wait()
		for _, c := range callers {
			_, err := c.Info(t.Context())
			require.NoError(t, err)
		}
		_, err := connect("client").Info(t.Context())
		require.ErrorIs(t, err, api.ErrBusy)
		require.ErrorContains(t, err, "256 connections of one address")
		_, err = connect("other").Info(t.Context())
		require.NoError(t, err)
		callers[1].Close()
		synctest.Wait()
		_, err = connect("client").Info(t.Context())
		require.NoError(t, err)
	})
}

// TestServer_ClosesIdleAndRejectedConnections checks that the server closes a connection that is idle, and a
// connection that exceeds a limit, even if the client sends nothing.
func TestServer_ClosesIdleAndRejectedConnections(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		start := time.Now()
		_, err := h.caller.Info(t.Context())
		require.NoError(t, err)
		<-h.caller.Done()
		require.Equal(t, 10*time.Minute, time.Since(start))
		_, idle := rpctest.Pipe()
		require.ErrorIs(t, h.server.Calls(h.ctx, idle, "client"), os.ErrDeadlineExceeded)

		for range 256 { // use up the limit of connections
			_, far := rpctest.Pipe()
			h.streams.Go(func() { _ = h.server.Calls(h.ctx, far, "client") })
		}
		synctest.Wait()
		for name, serve := range map[string]func(context.Context, rpc.Conn, string) error{"calls": h.server.Calls, "stream": h.server.Stream} {
			start := time.Now()
			var rejected sync.WaitGroup
			for range 64 {
				_, far := rpctest.Pipe()
				rejected.Go(func() {
					assert.ErrorIs(t, serve(h.ctx, far, "client"), api.ErrBusy)
					assert.LessOrEqual(t, time.Since(start), 2*time.Second, name)
				})
			}
			synctest.Wait()
			_, far := rpctest.Pipe()
			require.ErrorIs(t, serve(h.ctx, far, "client"), api.ErrBusy)
			require.Zero(t, time.Since(start), name)
			rejected.Wait()
		}
	})
}

// TestServer_LimitsReplies checks that the server limits the total size of the replies that a client
// does not read.
func TestServer_LimitsReplies(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		var candidates []api.Candidate
		for i := range 4000 {
			candidates = append(candidates, api.Candidate{ID: fmt.Sprint(i), Value: strings.Repeat("x", 1000)})
		}
		h.cluster.SetElection("e", api.Election{Candidates: candidates})
		near, far := rpctest.Pipe()
		h.streams.Go(func() { _ = h.server.Calls(h.ctx, far, "client") })
		for i := range byte(20) {
			require.NoError(t, near.WriteFrame(callFrame(5, i+1, 1, 'e')))
		}
		synctest.Wait()
		large := 0
		for range 20 {
			frame, err := near.ReadFrame()
			require.NoError(t, err)
			if frame[0] == 16 {
				large++
			}
		}
		require.InDelta(t, 8, large, 1, "replies of 33 MiB")
		require.NoError(t, near.Close())
	})
}

// TestServer_StopsReadingForUnreadStream checks that the server stops reading the log for a stream that the
// client does not read, and that the stream continues when the client reads again, even after a time that
// exceeds all timeouts.
func TestServer_StopsReadingForUnreadStream(t *testing.T) {
	for size, all := range map[int]int{1: 13_000, 10_000: 2_000} { // more entries of this size than a connection holds
		runInBubble(t, func(t *testing.T, h *harness) {
			h.cluster.Append(all, size)
			events := h.requestEntries(t.Context(), 1)
			synctest.Wait()
			stopped := h.peer.Read()
			require.Less(t, stopped, uint64(all/2))
			require.Greater(t, stopped, uint64(100))
			_, err := h.caller.Propose(t.Context(), api.NewRequestID(), nil)
			require.NoError(t, err)
			require.Equal(t, stopped, h.peer.Read())
			time.Sleep(time.Hour)
			require.Equal(t, stopped, h.peer.Read())
			for i := range uint64(all) {
				event, err := events.Next()
				require.NoError(t, err)
				require.Equal(t, i+1, event.Entry.Index)
			}
			require.NoError(t, events.Close())
		})
	}
}

// TestServer_LimitsPendingUpdates checks that the server limits the total size of the updates in
// progress of a connection.
func TestServer_LimitsPendingUpdates(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		h.cluster.Hold()
		data := make([]byte, wire.MaxData)
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				_, err := h.caller.Propose(t.Context(), api.NewRequestID(), data)
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		for _, size := range []int{1 << 20, 8 << 20} { // more than the limit leaves after the two updates
			_, err := h.caller.Propose(t.Context(), api.NewRequestID(), make([]byte, size))
			require.ErrorIs(t, err, api.ErrBusy)
			require.ErrorContains(t, err, "bytes of requests and replies in progress of one connection")
		}
		h.cluster.Release()
		calls.Wait()
		_, err := h.caller.Propose(t.Context(), api.NewRequestID(), data)
		require.NoError(t, err)
	})
}

// TestServer_CancelsCallsWhenContextIsDone checks that the server cancels its calls and closes the connection when
// its context is done.
func TestServer_CancelsCallsWhenContextIsDone(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		h.cluster.Hold()
		result := startPropose(t.Context(), h.caller)
		synctest.Wait()
		cause := errors.New("node is closed")
		h.stop(cause)
		require.ErrorIs(t, <-h.served, cause)
		require.ErrorIs(t, <-result, api.ErrUnknownOutcome)
		h.served <- nil
	})
}
