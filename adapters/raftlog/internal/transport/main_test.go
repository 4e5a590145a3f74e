package transport

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record keeps what is logged.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Count(r.text.Bytes(), []byte(what))
}

// world is a network with peers, in fake time. Peer x listens at x:7.
type world struct {
	*memnet.Network
	t     *testing.T
	nodes []*node
}

type node struct {
	*Transport
	log *record
}

func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{Network: memnet.New(), t: t}
		defer func() {
			for _, n := range w.nodes {
				n.Close()
			}
		}()
		f(t, w)
	})
}

func addr(id string) string { return id + ":7" }

func identity(id string) link.Identity {
	return link.Identity{Cluster: "c1", ID: id, Peer: true, Addr: addr(id), Insecure: true}
}

func peers(ids ...string) (list []api.Peer) {
	for _, id := range ids {
		list = append(list, api.Peer{ID: id, Addr: addr(id)})
	}
	return list
}

// node makes and runs a peer that keeps connections to others.
func (w *world) node(id string, others []api.Peer, changes ...func(*Config)) *node {
	w.t.Helper()
	l, err := w.Listen(addr(id))
	require.NoError(w.t, err)
	log := &record{}
	cfg := Config{
		Self: identity(id), Listener: l, Log: slog.New(slog.NewTextHandler(log, nil)),
		Dial: func(ctx context.Context, to string) (net.Conn, error) { return w.Network.Dial(ctx, addr(id), to) },
		Rand: func() float64 { return 0.5 },
	}
	for _, change := range changes {
		change(&cfg)
	}
	n := &node{New(cfg), log}
	n.SetPeers(others)
	require.NoError(w.t, n.Run())
	w.nodes = append(w.nodes, n)
	return n
}

// stranger is a connection to a peer by somebody who is not a Transport.
func (w *world) stranger(id, to string, purpose link.Purpose) (*link.Conn, error) {
	raw, err := w.Network.Dial(w.t.Context(), addr(id), addr(to))
	require.NoError(w.t, err)
	return link.Dial(w.t.Context(), raw, identity(id), to, purpose)
}

// settle waits until all that can happen without time has happened.
func settle() { synctest.Wait() }

func (n *node) receive(t *testing.T) Frame {
	t.Helper()
	select {
	case f, ok := <-n.Received():
		require.True(t, ok, "closed")
		return f
	case <-time.After(time.Minute):
		require.Fail(t, "nothing was received")
		return Frame{}
	}
}

func (n *node) requireUnreachable(t *testing.T, id string) {
	t.Helper()
	select {
	case got := <-n.Unreachable():
		require.Equal(t, id, got)
	case <-time.After(time.Minute):
		require.Fail(t, "nobody is unreachable")
	}
}

func (n *node) requireNoneUnreachable(t *testing.T) {
	t.Helper()
	settle()
	select {
	case id := <-n.Unreachable():
		require.Fail(t, "unreachable", id)
	default:
	}
}

func numbered(i int) []byte { return fmt.Appendf(nil, "frame %d", i) }
