// Package memnet is a network in memory for tests: connections between addresses that can
// be cut, healed and slowed down in each direction by itself. It does no real I/O and waits
// by channels and timers only, so it runs in bubbles of testing/synctest.
//
// A cut direction carries nothing, as a network whose cable was pulled: nobody is told.
// Bytes that are written wait, up to the 64 KiB that a direction of a connection holds, and
// further writes block; they come when the direction is healed. So does the end of a
// connection that was closed meanwhile. What waits for a reader who closes is lost.
package memnet

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// capacity is how many bytes one direction of a connection holds.
const capacity = 64 << 10

// backlog is how many connections wait to be accepted before dialing blocks.
const backlog = 128

// Addr is an address on a Network.
type Addr string

// Network returns "mem".
func (Addr) Network() string { return "mem" }

func (a Addr) String() string { return string(a) }

type direction struct{ from, to string }

type condition struct {
	cut   bool
	delay time.Duration
}

// Network is a network. Its methods may be called from any goroutine.
type Network struct {
	mu         sync.Mutex
	listeners  map[string]*listener
	conditions map[direction]condition
	conns      map[*conn]struct{} // both ends of each
	changed    chan struct{}      // closed at the next change of conditions
}

// New makes a network without listeners, cuts or delays.
func New() *Network {
	return &Network{
		listeners: map[string]*listener{}, conditions: map[direction]condition{},
		conns: map[*conn]struct{}{}, changed: make(chan struct{}),
	}
}

// Listen accepts connections to addr, until the listener is closed.
func (n *Network) Listen(addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		return nil, opError("listen", addr, syscall.EADDRINUSE)
	}
	l := &listener{network: n, addr: addr, incoming: make(chan *conn, backlog), closed: make(chan struct{})}
	n.listeners[addr] = l
	return l, nil
}

func opError(op, addr string, err error) error {
	return &net.OpError{Op: op, Net: "mem", Addr: Addr(addr), Err: err}
}

// Dial connects the address from with a listener. While one of the directions is cut it
// waits, until ctx ends; where nobody listens it fails at once.
func (n *Network) Dial(ctx context.Context, from, addr string) (net.Conn, error) {
	there, back := direction{from, addr}, direction{addr, from}
	for {
		n.mu.Lock()
		a, b, changed, l := n.conditions[there], n.conditions[back], n.changed, n.listeners[addr]
		n.mu.Unlock()
		if a.cut || b.cut {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil, opError("dial", addr, context.Cause(ctx))
			}
		}
		if d := a.delay + b.delay; d > 0 {
			timer := time.NewTimer(d)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return nil, opError("dial", addr, context.Cause(ctx))
			}
		}
		if l == nil {
			return nil, opError("dial", addr, syscall.ECONNREFUSED)
		}
		return n.connect(ctx, l, there, back)
	}
}

func (n *Network) connect(ctx context.Context, l *listener, there, back direction) (net.Conn, error) {
	out := &stream{network: n, direction: there, changed: make(chan struct{})}
	in := &stream{network: n, direction: back, changed: make(chan struct{})}
	near := &conn{network: n, local: there.from, remote: there.to, in: in, out: out}
	far := &conn{network: n, local: there.to, remote: there.from, in: out, out: in}
	near.peer, far.peer = far, near
	n.mu.Lock()
	n.conns[near], n.conns[far] = struct{}{}, struct{}{}
	n.mu.Unlock()
	var err error
	select {
	case l.incoming <- far:
		select {
		case <-l.closed: // it may have missed this one
			far.Close()
		default:
		}
		return near, nil
	case <-l.closed:
		err = syscall.ECONNREFUSED
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	near.Close()
	far.Close()
	return nil, opError("dial", there.to, err)
}

// Cut stops what goes from one address to another; only in that direction.
func (n *Network) Cut(from, to string) { n.set(from, to, func(c *condition) { c.cut = true }) }

// Heal undoes Cut: what waits goes on.
func (n *Network) Heal(from, to string) { n.set(from, to, func(c *condition) { c.cut = false }) }

// CutBoth cuts both directions.
func (n *Network) CutBoth(a, b string) { n.Cut(a, b); n.Cut(b, a) }

// HealBoth heals both directions.
func (n *Network) HealBoth(a, b string) { n.Heal(a, b); n.Heal(b, a) }

// Delay has bytes that are written from now on take that long from one address to another.
// Their order stays.
func (n *Network) Delay(from, to string, d time.Duration) {
	n.set(from, to, func(c *condition) { c.delay = d })
}

func (n *Network) set(from, to string, change func(*condition)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := direction{from, to}
	c := n.conditions[d]
	change(&c)
	if n.conditions[d] = c; c == (condition{}) {
		delete(n.conditions, d)
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *Network) condition(d direction) (condition, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.conditions[d], n.changed
}

// Reset breaks the connections between two addresses, in spite of cuts: both ends get an
// error at once, and what was on its way is lost.
func (n *Network) Reset(a, b string) {
	n.mu.Lock()
	var broken []*conn
	for c := range n.conns {
		if c.local == a && c.remote == b || c.local == b && c.remote == a {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		c.in.reset()
		c.out.reset()
	}
}

type listener struct {
	network  *Network
	addr     string
	incoming chan *conn
	once     sync.Once
	closed   chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, opError("accept", l.addr, net.ErrClosed)
	default:
	}
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, opError("accept", l.addr, net.ErrClosed)
	}
}

func (l *listener) Addr() net.Addr { return Addr(l.addr) }

// Close also closes the connections that nobody has accepted.
func (l *listener) Close() error {
	err := fmt.Errorf("memnet: listener at %s: %w", l.addr, net.ErrClosed)
	l.once.Do(func() {
		err = nil
		l.network.mu.Lock()
		delete(l.network.listeners, l.addr)
		l.network.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.incoming:
				c.Close()
				continue
			default:
			}
			return
		}
	})
	return err
}
