// Package transport exchanges messages between peers as frames. It connects to the other peers, and
// connects again when a connection is lost. Sending does not block: a frame that cannot be sent is
// dropped, and its peer is reported as unreachable.
package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

const (
	// receiveBuffer is the number of received frames that are buffered for the user of the Transport.
	// While the buffer is full, the Transport does not read from its connections, and the queues of the
	// other peers fill.
	receiveBuffer = 256
	// DialTimeout is the maximum duration of an attempt to connect.
	DialTimeout = 5 * time.Second
	// The pause between two attempts to connect doubles from minPause to maxPause.
	minPause = 50 * time.Millisecond
	maxPause = time.Second
	// keepaliveInterval is the interval at which an empty frame is sent on an idle connection, so that
	// a lost connection is detected after readTimeout. TCP alone needs minutes to detect a lost
	// connection, and seconds to detect that a network has recovered.
	keepaliveInterval = 500 * time.Millisecond
	readTimeout       = 3 * time.Second
	// writeTimeout is the time after which a write that makes no progress fails.
	writeTimeout = 10 * time.Second
	// secretsInterval is the interval at which the Transport closes connections whose secret is not
	// valid any more.
	secretsInterval = 5 * time.Second
)

// Frame is a frame that a peer has sent to this peer. The receiver may keep Data.
type Frame struct {
	From link.Hello
	Data []byte
}

// Config configures a Transport. The fields Self, Listener and Dial are required.
type Config struct {
	// Self is the identity of this process, which must be a peer.
	Self link.Identity
	// Listener accepts the connections of other processes. The Transport closes it.
	Listener net.Listener
	// Dial connects to the address of a peer. It must return when ctx is done.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Log receives messages about connections. If it is nil, the messages are discarded.
	Log *slog.Logger
	// OnClient is called with each connection of a client, in a separate goroutine. It owns the
	// connection until it returns. Close of the Transport closes the connection and waits for OnClient.
	// If OnClient is nil, connections of clients are rejected.
	OnClient func(*link.Conn)
	// OnSnapshot is called, like OnClient, with each connection on which a peer sends a snapshot.
	// OnSnapshot should call ReceiveSnapshot first.
	OnSnapshot func(*link.Conn)
	// Accepts decides whether a connection is accepted. It is called for processes that have connected to
	// this one, and for peers to which this one has connected. If it returns an error, the connection is
	// rejected, and the other side receives the text of the error, and its reason if it is a
	// link.RefusedError. For a connection that exchanges frames, Accepts is called again before the first
	// frame is received and by each CheckPeers; if it returns an error then, the connection is closed. The
	// goroutine of the connection or of CheckPeers calls Accepts, which must not block.
	Accepts func(link.Hello) error
	// OnRefused is called if a peer has rejected a connection of this process. The goroutine of the
	// connection calls it, so it must not block.
	OnRefused func(id string, refused *link.RefusedError)
	// Rand returns random numbers in [0, 1), which vary the pauses between attempts to connect. Any
	// goroutine may call it. The default is rand.Float64.
	Rand func() float64
}

// Transport connects a peer with other peers. Any goroutine may call its methods.
//
// Between two peers there are two connections, one dialed by each of them. A peer receives frames on
// both, and sends frames on the connection that was established first, until that connection is lost.
// So a peer that has connected to this one receives replies, even if this one does not know its
// address.
type Transport struct {
	cfg         Config
	ctx         context.Context
	cancel      context.CancelFunc
	frames      chan Frame
	unreachable *mailbox
	goroutines  sync.WaitGroup
	closed      chan struct{} // closed after Close has completed

	mu        sync.Mutex
	listening bool // whether acceptConns runs
	running   bool
	closing   bool
	peers     map[string]*peer
	tracked   map[io.Closer]struct{}
	pending   []*pendingConn // connections whose handshake is not complete, oldest first
	warnings  throttle
}

// New returns a Transport with the given configuration, which does nothing before Run or Listen is
// called.
func New(cfg Config) *Transport {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	t := &Transport{
		cfg: cfg, frames: make(chan Frame, receiveBuffer), unreachable: newMailbox(), closed: make(chan struct{}),
		peers: map[string]*peer{}, tracked: map[io.Closer]struct{}{},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Run starts to accept connections, and to connect to the peers of SetPeers. It does not block. The
// error wraps api.ErrInvalid if the Config is invalid, and api.ErrClosed after Close.
func (t *Transport) Run() error {
	switch err := t.cfg.Self.Validate(); {
	case err != nil:
		return err
	case !t.cfg.Self.Peer:
		return fmt.Errorf("%w: Self.Peer is not set", api.ErrInvalid)
	case t.cfg.Listener == nil || t.cfg.Dial == nil:
		return fmt.Errorf("%w: a transport needs a Listener and Dial", api.ErrInvalid)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closing:
		return api.ErrClosed
	case t.running:
		return fmt.Errorf("%w: the transport is already running", api.ErrInvalid)
	}
	t.running = true
	t.listen()
	t.goroutines.Go(func() { t.unreachable.deliver(t.ctx) })
	if t.cfg.Self.Secrets != nil {
		t.goroutines.Go(t.closeUnauthenticated)
	}
	for _, p := range t.peers {
		if len(p.addrs) > 0 {
			t.startDialer(p)
		}
	}
	return nil
}

// closeUnauthenticated closes connections whose secret is not valid any more, until the transport is closed.
// Without this, a process that had access once would keep it.
func (t *Transport) closeUnauthenticated() {
	tick := time.NewTicker(secretsInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-t.ctx.Done():
			return
		}
		valid := t.cfg.Self.Secrets()
		t.mu.Lock()
		open := slices.Collect(maps.Keys(t.tracked))
		t.mu.Unlock()
		for _, c := range open {
			if conn, ok := c.(*link.Conn); ok && !conn.IsAuthenticatedBy(valid) {
				t.cfg.Log.Info("closing a connection whose secret is not valid any more", "remote", conn.Remote().ID, "from", conn.RemoteAddr().String())
				conn.Close()
			}
		}
	}
}

// Connection describes the connection of this Transport to a peer of SetPeers.
type Connection struct {
	ID        string
	Connected bool
	Err       error // the error of the last attempt to connect, or nil
}

// Connections describes the connections to all peers of SetPeers, in the order of the peers' IDs.
func (t *Transport) Connections() (all []Connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range t.peers {
		if len(p.addrs) > 0 {
			all = append(all, Connection{ID: id, Connected: p.sender != nil, Err: p.err})
		}
	}
	slices.SortFunc(all, func(a, b Connection) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// Listen accepts connections and immediately closes them until Run is called. So other peers do not wait for
// a handshake with a peer that is starting. The caller may still call SetClaim until it calls Run.
func (t *Transport) Listen() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listen()
}

// listen starts to accept connections, unless it has started already. The caller holds t.mu.
func (t *Transport) listen() {
	if !t.listening && !t.closing {
		t.listening = true
		t.goroutines.Go(t.acceptConns)
	}
}

// SetClaim sets the claim of Config.Self. The caller must call it before Run.
func (t *Transport) SetClaim(c link.Claim) { t.cfg.Self.Claim = c }

// Received returns the channel of the frames that arrive from all peers. The frames of one connection
// are in order. Close closes the channel. While the channel is not read, the Transport does not read
// from its connections either.
func (t *Transport) Received() <-chan Frame { return t.frames }

// Unreachable returns a channel of the IDs of those peers for which a frame was dropped or may have
// been lost. The channel does not contain an ID twice. Close closes the channel.
func (t *Transport) Unreachable() <-chan string { return t.unreachable.out }

// Send enqueues a frame for a peer. It does not block and does not copy the frame, so the caller must
// not modify the frame any more. Urgent frames are sent before other frames. Send returns false if the
// frame was dropped: there is no connection, the queue is full (4096 frames or 64 MiB of urgent or
// other frames), the frame is empty or larger than link.MaxFrame, or the Transport is closed. After a
// dropped frame, Unreachable reports the peer. The result true does not mean that the peer will receive
// the frame.
func (t *Transport) Send(to string, urgent bool, frame []byte) bool {
	t.mu.Lock()
	p := t.peers[to]
	ok := p != nil && !t.closing && p.enqueue(urgent, frame)
	t.mu.Unlock()
	if !ok {
		t.unreachable.addID(to)
	}
	return ok
}

// SetPeers sets the peers to which the Transport connects. If the list contains several addresses of a
// peer, the Transport tries one after another. It ignores this peer itself, and peers without an ID or
// an address. Connections to peers that are not in the list any more are closed after their queues are
// sent. Connections that other peers have established remain. If the address of a connection is not in
// the list any more, the Transport immediately connects to the new addresses.
func (t *Transport) SetPeers(peers []api.Peer) {
	want := map[string][]string{}
	for _, p := range peers {
		if p.ID != "" && p.Addr != "" && p.ID != t.cfg.Self.ID && !slices.Contains(want[p.ID], p.Addr) {
			want[p.ID] = append(want[p.ID], p.Addr)
		}
	}
	var moved []*session
	defer func() {
		for _, s := range moved {
			s.close()
		}
	}()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return
	}
	for id, p := range t.peers {
		switch {
		case slices.Equal(want[id], p.addrs):
		case p.dialed != nil && p.dialer != nil && slices.Contains(want[id], p.dialer.addr):
			p.addrs = want[id] // the dialer uses the new addresses after the connection has ended
		default:
			if s := t.stopDialer(p, len(want[id]) == 0); s != nil {
				moved = append(moved, s)
			}
			p.addrs = nil
			t.removeIfUnused(p)
		}
	}
	for id, addrs := range want {
		p := t.ensurePeer(id)
		if slices.Equal(p.addrs, addrs) {
			continue
		}
		p.addrs = addrs
		if t.running {
			t.startDialer(p)
		}
	}
}

// ensurePeer returns the peer with the given ID, and adds the peer if it does not exist. The caller
// holds t.mu.
func (t *Transport) ensurePeer(id string) *peer {
	p := t.peers[id]
	if p == nil {
		p = &peer{id: id}
		t.peers[id] = p
	}
	return p
}

// removeIfUnused removes a peer that has no address and no connection. If p was removed before, another
// peer with the same ID may have been added, which must not be removed. The caller holds t.mu.
func (t *Transport) removeIfUnused(p *peer) {
	if t.peers[p.id] == p && len(p.addrs) == 0 && p.dialed == nil && p.accepted == nil {
		delete(t.peers, p.id)
	}
}

// trackCloser makes Close of the Transport close c. If Close was already called, trackCloser closes c
// and returns false.
func (t *Transport) trackCloser(c io.Closer) bool {
	t.mu.Lock()
	closing := t.closing
	if !closing {
		t.tracked[c] = struct{}{}
	}
	t.mu.Unlock()
	if closing {
		c.Close()
	}
	return !closing
}

// closeTracked closes c, so that Close of the Transport need not close it any more.
func (t *Transport) closeTracked(c io.Closer) {
	t.mu.Lock()
	delete(t.tracked, c)
	t.mu.Unlock()
	c.Close()
}

// Close closes the listener and all connections. It waits for all goroutines, for the functions of
// Config and for calls of Snapshot. Frames that were not sent are lost. Close may be called repeatedly.
func (t *Transport) Close() {
	t.mu.Lock()
	if t.closing {
		t.mu.Unlock()
		<-t.closed
		return
	}
	t.closing = true
	t.cancel()
	open := slices.Collect(maps.Keys(t.tracked)) // complete, because trackCloser adds nothing after closing is set
	t.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
	if t.cfg.Listener != nil {
		if err := t.cfg.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.cfg.Log.Warn("closing the listener failed", "err", err)
		}
	}
	t.goroutines.Wait()
	close(t.frames)
	close(t.unreachable.out)
	close(t.closed)
}
