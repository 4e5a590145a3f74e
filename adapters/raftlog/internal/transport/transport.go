// Package transport carries the peers' messages to each other: frames, by connections that
// it makes and makes again. It never makes its user wait, and says what it had to drop.
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
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

const (
	// received is how many frames wait for the user. Then connections are not read any
	// more, and the other sides' queues fill.
	received = 256
	// dialTime is how long one attempt to connect may take.
	dialTime = 5 * time.Second
	// Pauses between attempts double from the first to the last.
	minPause = 50 * time.Millisecond
	maxPause = time.Second
	// pulse is how often a connection carries something, so that one that has died, without
	// anybody telling, is known by its silence. TCP by itself takes minutes for that, and
	// seconds to find out that a network is back.
	pulse   = 500 * time.Millisecond
	silence = 3 * time.Second
	// stall is how long a write may not get on.
	stall = 10 * time.Second
)

// Frame is what a peer has sent.
type Frame struct {
	From link.Hello
	Data []byte // the receiver's
}

// Config is what a Transport needs. Self, Listener and Dial have to be set.
type Config struct {
	// Self is this process; a peer.
	Self link.Identity
	// Listener is where others connect to. The Transport closes it.
	Listener net.Listener
	// Dial connects to a peer's address. It has to return when ctx ends.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Log gets what happens to connections; by default nobody does.
	Log *slog.Logger
	// OnClient is called with each connection of a client, in a separate goroutine. It owns the
	// connection until it returns. Close closes the connection and waits for OnClient. If
	// OnClient is nil, such connections are rejected.
	OnClient func(*link.Conn)
	// OnSnapshot is the same for connections on which a peer sends a snapshot; it begins by
	// ReceiveSnapshot.
	OnSnapshot func(*link.Conn)
	// Accepts may refuse who has connected, by an error that is told to it; a
	// link.RefusedError chooses the reason. It is called on the connection's goroutine and
	// must not wait for anything.
	Accepts func(link.Hello) error
	// Accepts is also asked about the peer that has answered where this one has connected to.
	//
	// OnRefused is told that a peer has refused this one's connection. It is called on the
	// connection's goroutine and must not wait for anything.
	OnRefused func(id string, refused *link.RefusedError)
	// Rand returns numbers in [0, 1), for pauses that differ; from any goroutine. By default
	// it is rand.Float64.
	Rand func() float64
}

// Transport connects a peer with others. Its methods may be called from any goroutine.
//
// Between two peers there are two connections, one dialed by each. Both are read; what is
// sent goes by the one that was there first, as long as it lasts. Hence a peer that has
// connected gets answers, even if this one does not know its address.
type Transport struct {
	cfg         Config
	ctx         context.Context
	cancel      context.CancelFunc
	received    chan Frame
	unreachable *mailbox
	group       sync.WaitGroup
	closed      chan struct{} // when Close is complete

	mu      sync.Mutex
	running bool
	closing bool
	peers   map[string]*peer
	open    map[io.Closer]struct{}
	pending []*pendingConn // oldest first
	quiet   throttle
}

// New makes a Transport that does nothing before Run.
func New(cfg Config) *Transport {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	t := &Transport{
		cfg: cfg, received: make(chan Frame, received), unreachable: newMailbox(), closed: make(chan struct{}),
		peers: map[string]*peer{}, open: map[io.Closer]struct{}{},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Run begins to accept connections and to make those of SetPeers. It does not wait. Errors
// wrap api.ErrInvalid for a Config that cannot work, and api.ErrClosed after Close.
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
	t.group.Go(t.listen)
	t.group.Go(func() { t.unreachable.deliver(t.ctx) })
	for _, p := range t.peers {
		if p.addr != "" {
			t.startKeeper(p)
		}
	}
	return nil
}

// Received has the frames of all peers, those of a connection in the order in which they
// came. It is closed by Close. If it is not read, connections are not read either.
func (t *Transport) Received() <-chan Frame { return t.received }

// Unreachable has the IDs of peers for whom something was dropped or may have been lost,
// each once until it is read. It is closed by Close.
func (t *Transport) Unreachable() <-chan string { return t.unreachable.out }

// Send has a frame sent to a peer; it never blocks, and takes no copy: the frame must not be
// modified any more. Urgent frames overtake those that are not. False means that the frame
// was dropped, because there is no connection or its queue is full (4096 frames or 64 MiB,
// of either sort), because it is empty or larger than link.MaxFrame, or by Close; the peer
// is then reported by Unreachable. True does not mean that the frame arrives.
func (t *Transport) Send(to string, urgent bool, frame []byte) bool {
	t.mu.Lock()
	p := t.peers[to]
	ok := p != nil && !t.closing && p.push(urgent, frame)
	t.mu.Unlock()
	if !ok {
		t.unreachable.put(to)
	}
	return ok
}

// SetPeers says whom to keep connections to. This peer itself is left out, and so is who has
// no ID or address. Connections that others have made stay, and those to peers that are not
// wanted any more are closed when what waits for them is sent. A changed address is dialed
// at once.
func (t *Transport) SetPeers(peers []api.Peer) {
	want := map[string]string{}
	for _, p := range peers {
		if p.ID != "" && p.Addr != "" && p.ID != t.cfg.Self.ID {
			want[p.ID] = p.Addr
		}
	}
	var moved []*session
	defer func() {
		for _, s := range moved {
			s.end()
		}
	}()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return
	}
	for id, p := range t.peers {
		if want[id] != p.addr {
			if s := t.stopKeeper(p, want[id] == ""); s != nil {
				moved = append(moved, s)
			}
			p.addr = ""
			t.forget(p)
		}
	}
	for id, addr := range want {
		p := t.peer(id)
		if p.addr == addr {
			continue
		}
		p.addr = addr
		if t.running {
			t.startKeeper(p)
		}
	}
}

// peer returns the peer of that ID, which is made if need be. With t.mu held.
func (t *Transport) peer(id string) *peer {
	p := t.peers[id]
	if p == nil {
		p = &peer{id: id}
		t.peers[id] = p
	}
	return p
}

// forget drops a peer that is nothing to us any more. With t.mu held.
func (t *Transport) forget(p *peer) {
	if p.addr == "" && p.out == nil && p.in == nil {
		delete(t.peers, p.id)
	}
}

// track has Close close c, unless it has begun: then c is closed here, and false returned.
func (t *Transport) track(c io.Closer) bool {
	t.mu.Lock()
	closing := t.closing
	if !closing {
		t.open[c] = struct{}{}
	}
	t.mu.Unlock()
	if closing {
		c.Close()
	}
	return !closing
}

// release closes what was tracked.
func (t *Transport) release(c io.Closer) {
	t.mu.Lock()
	delete(t.open, c)
	t.mu.Unlock()
	c.Close()
}

// Close closes the listener and all connections, and waits until everything has ended, the
// handlers of Config and calls of Snapshot included. Frames that wait to be sent are lost.
// It may be called more than once.
func (t *Transport) Close() {
	t.mu.Lock()
	if t.closing {
		t.mu.Unlock()
		<-t.closed
		return
	}
	t.closing = true
	t.cancel()
	open := slices.Collect(maps.Keys(t.open)) // nothing is added any more
	t.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
	if t.cfg.Listener != nil {
		if err := t.cfg.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.cfg.Log.Warn("closing the listener failed", "err", err)
		}
	}
	t.group.Wait()
	close(t.received)
	close(t.unreachable.out)
	close(t.closed)
}
