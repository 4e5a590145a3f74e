package rpc_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// These are the peers of the tests. peerA leads the log.
var peerA, peerB = api.Peer{ID: "a", Addr: "a:1"}, api.Peer{ID: "b", Addr: "b:1"}

// harness is a peer that leads the log, and a Caller that is connected to it.
type harness struct {
	cluster   *rpctest.Cluster
	peer      *rpctest.Peer
	server    *rpc.Server
	caller    *rpc.Caller
	near, far *rpctest.End
	served    chan error
	ctx       context.Context
	stop      context.CancelCauseFunc
	streams   sync.WaitGroup
}

// dialStream returns both ends of a new connection for a stream. The server serves the far end.
func (h *harness) dialStream() (near, far *rpctest.End) {
	near, far = rpctest.Pipe()
	h.streams.Go(func() { _ = h.server.Stream(h.ctx, far, "client") })
	return near, far
}

// requestEntries requests a stream of entries from the given index on, on a new connection.
func (h *harness) requestEntries(ctx context.Context, from uint64) *rpc.Stream {
	near, _ := h.dialStream()
	return rpc.Entries(ctx, near, from, 0)
}

// runInBubble calls test in fake time with a harness, and closes all connections after that.
func runInBubble(t *testing.T, test func(t *testing.T, h *harness)) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{cluster: rpctest.New(peerA, peerB), served: make(chan error, 1)}
		h.peer = h.cluster.Peer(peerA)
		h.server = rpc.NewServer(h.peer)
		h.near, h.far = rpctest.Pipe()
		h.ctx, h.stop = context.WithCancelCause(t.Context())
		go func() { h.served <- h.server.Calls(h.ctx, h.far, "client") }()
		h.caller = rpc.NewCaller(h.near)
		test(t, h)
		h.caller.Close()
		h.stop(nil)
		h.streams.Wait()
		synctest.Wait()
		require.Len(t, h.served, 1, "Calls has not returned")
	})
}

// startPropose calls Propose in a goroutine, and returns a channel that receives the error of Propose.
func startPropose(ctx context.Context, c *rpc.Caller) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, err := c.Propose(ctx, api.NewRequestID(), nil)
		result <- err
	}()
	return result
}

// readFrames reads the given number of frames from a connection, and replies to none of them.
func readFrames(t *testing.T, far *rpctest.End, frames int) {
	for range frames {
		_, err := far.ReadFrame()
		require.NoError(t, err)
	}
}

// callFrame returns the frame of a call or of a reply with the given content.
func callFrame(kind, number byte, body ...byte) []byte {
	return append([]byte{kind, 0, 0, 0, 0, 0, 0, 0, number}, body...)
}

// openStream returns a stream of entries, and the far end of its connection. The request of the stream
// was read from the far end.
func openStream(t *testing.T) (*rpc.Stream, *rpctest.End) {
	near, far := rpctest.Pipe()
	stream := rpc.Entries(t.Context(), near, 1, 0)
	t.Cleanup(func() { stream.Close() })
	readFrames(t, far, 1)
	return stream, far
}
