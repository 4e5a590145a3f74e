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
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logRecord contains everything that a logger has written.
type logRecord struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *logRecord) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// countText returns how often the log contains the given text.
func (r *logRecord) countText(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Count(r.text.Bytes(), []byte(text))
}

// harness is a network in memory with peers, in fake time. The peer with the ID x listens at x:7.
type harness struct {
	t       *testing.T
	network *testenv.Network
	peers   []*Transport
	logs    map[string]*logRecord // the logs of the peers, by peer ID
}

// runInBubble calls test in fake time, and closes all peers after that.
func runInBubble(t *testing.T, test func(t *testing.T, h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t, network: testenv.NewNetwork(), logs: map[string]*logRecord{}}
		defer func() {
			for _, p := range h.peers {
				p.Close()
			}
		}()
		test(t, h)
	})
}

func addressOf(id string) string { return id + ":7" }

func identityOf(id string) link.Identity {
	return link.Identity{Cluster: "c1", ID: id, Peer: true, Addr: addressOf(id), Insecure: true}
}

func peersOf(ids ...string) (list []api.Peer) {
	for _, id := range ids {
		list = append(list, api.Peer{ID: id, Addr: addressOf(id)})
	}
	return list
}

// startPeer runs a peer that connects to the peers others. changes modify the configuration of the
// peer.
func (h *harness) startPeer(id string, others []api.Peer, changes ...func(*Config)) *Transport {
	h.t.Helper()
	l, err := h.network.Listen(addressOf(id))
	require.NoError(h.t, err)
	log := &logRecord{}
	h.logs[id] = log
	cfg := Config{
		Self: identityOf(id), Listener: l, Log: slog.New(slog.NewTextHandler(log, nil)),
		Dial: func(ctx context.Context, to string) (net.Conn, error) { return h.network.Dial(ctx, addressOf(id), to) },
		Rand: func() float64 { return 0.5 },
	}
	for _, change := range changes {
		change(&cfg)
	}
	p := New(cfg)
	p.SetPeers(others)
	require.NoError(h.t, p.Run())
	h.peers = append(h.peers, p)
	return p
}

// dialAs connects to a peer, as the process with the given ID, without a Transport.
func (h *harness) dialAs(id, to string, purpose link.Purpose) (*link.Conn, error) {
	raw, err := h.network.Dial(h.t.Context(), addressOf(id), addressOf(to))
	require.NoError(h.t, err)
	return link.Dial(h.t.Context(), raw, identityOf(id), peersOf(to)[0], purpose)
}

// waitIdle waits until all goroutines are blocked until time passes.
func waitIdle() { synctest.Wait() }

func receiveFrame(t *testing.T, p *Transport) Frame {
	t.Helper()
	select {
	case f, ok := <-p.Received():
		require.True(t, ok, "the transport is closed")
		return f
	case <-time.After(time.Minute):
		require.Fail(t, "no frame was received")
		return Frame{}
	}
}

// requireDelivery sends a frame from one peer to another, and requires that it arrives.
func requireDelivery(t *testing.T, from, to *Transport, text string) {
	t.Helper()
	require.True(t, from.Send(to.cfg.Self.ID, false, []byte(text)))
	require.Equal(t, text, string(receiveFrame(t, to).Data))
}

// requireReceipt sends a frame on a connection to a peer, and requires that the peer receives it.
func requireReceipt(t *testing.T, p *Transport, c *link.Conn, text string) {
	t.Helper()
	require.NoError(t, c.WriteFrame([]byte(text)))
	require.Equal(t, text, string(receiveFrame(t, p).Data))
}

// requireFrame requires that the next frame of a connection contains the given text.
func requireFrame(t *testing.T, c *link.Conn, text string) {
	t.Helper()
	frame, err := c.ReadFrame()
	require.NoError(t, err)
	require.Equal(t, text, string(frame))
}

// requireUnreachable requires that p reports the peer with the given ID as unreachable next.
func requireUnreachable(t *testing.T, p *Transport, id string) {
	t.Helper()
	select {
	case got := <-p.Unreachable():
		require.Equal(t, id, got)
	case <-time.After(time.Minute):
		require.Fail(t, "no peer was reported as unreachable")
	}
}

func requireNoneUnreachable(t *testing.T, p *Transport) {
	t.Helper()
	waitIdle()
	select {
	case id := <-p.Unreachable():
		require.Fail(t, "a peer was reported as unreachable", id)
	default:
	}
}

func numberedFrame(i int) []byte { return fmt.Appendf(nil, "frame %d", i) }

// connectOverTCP returns two peers that are connected over loopback. The function change modifies the
// identity of each peer.
func connectOverTCP(tb testing.TB, change func(*link.Identity)) (*Transport, *Transport) {
	tb.Helper()
	var both []*Transport
	var list []api.Peer
	for _, id := range []string{"a", "b"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(tb, err)
		self := link.Identity{Cluster: "c1", ID: id, Peer: true, Addr: l.Addr().String()}
		change(&self)
		list = append(list, api.Peer{ID: id, Addr: self.Addr})
		t := New(Config{Self: self, Listener: l, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}})
		tb.Cleanup(t.Close)
		both = append(both, t)
	}
	for _, t := range both {
		t.SetPeers(list)
		require.NoError(tb, t.Run())
	}
	for i, t := range both {
		require.Eventually(tb, func() bool {
			t.mu.Lock()
			defer t.mu.Unlock()
			p := t.peers[list[1-i].ID]
			return p != nil && p.sender != nil
		}, 30*time.Second, time.Millisecond)
	}
	return both[0], both[1]
}

// modes are the ways to authenticate peers. Each function modifies an identity accordingly.
var modes = map[string]func(*link.Identity){
	"plain": func(i *link.Identity) { i.Insecure = true },
	"TLS":   func(i *link.Identity) { i.Secret = []byte("a secret of more than 16 bytes") },
}
