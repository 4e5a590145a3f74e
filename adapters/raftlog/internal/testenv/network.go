// Package testenv provides what a cluster of peers needs, in memory: a disk that can crash, and a network that
// can be interrupted.
package testenv

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// capacity is the number of bytes that one direction of a connection can hold.
const capacity = 64 << 10

// backlog is the number of connections to a listener that can wait for Accept before Dial blocks.
const backlog = 128

// Addr is an address on a Network.
type Addr string

// Network returns "mem".
func (Addr) Network() string { return "mem" }

func (a Addr) String() string { return string(a) }

// direction is the direction in which data flows from one address to another.
type direction struct{ from, to string }

type condition struct {
	cut   bool
	delay time.Duration
}

// Network is a network in memory. Each direction between two addresses can be interrupted, restored and delayed
// separately. Network waits only for channels and timers, so it can be used in bubbles of testing/synctest. Any
// goroutine may call its methods.
//
// An interrupted direction carries nothing, and causes no errors, as if a cable was unplugged. Data that is
// written waits until the direction is restored, and so does the close of a connection. A direction of a
// connection holds 64 KiB; further writes block. Data is lost if the reader closes the connection.
type Network struct {
	mu         sync.Mutex
	listeners  map[string]*listener
	conditions map[direction]condition
	conns      map[*conn]struct{} // contains both ends of each connection
	changed    chan struct{}      // closed and replaced whenever a direction is cut, healed or delayed
}

// NewNetwork returns a network without listeners, interruptions and delays.
func NewNetwork() *Network {
	return &Network{
		listeners: map[string]*listener{}, conditions: map[direction]condition{},
		conns: map[*conn]struct{}{}, changed: make(chan struct{}),
	}
}

// Listen returns a listener that accepts connections to addr.
func (n *Network) Listen(addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		return nil, netError("listen", addr, syscall.EADDRINUSE)
	}
	l := &listener{network: n, addr: addr, incoming: make(chan *conn, backlog), closed: make(chan struct{})}
	n.listeners[addr] = l
	return l, nil
}

func netError(op, addr string, err error) error {
	return &net.OpError{Op: op, Net: "mem", Addr: Addr(addr), Err: err}
}

// Dial connects from the address from to the listener at addr. While one of the two directions is
// interrupted, Dial waits until ctx is done. If there is no listener, Dial returns an error
// immediately.
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
				return nil, netError("dial", addr, context.Cause(ctx))
			}
		}
		if d := a.delay + b.delay; d > 0 {
			timer := time.NewTimer(d)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return nil, netError("dial", addr, context.Cause(ctx))
			}
		}
		if l == nil {
			return nil, netError("dial", addr, syscall.ECONNREFUSED)
		}
		return n.newConn(ctx, l, there, back)
	}
}

func (n *Network) newConn(ctx context.Context, l *listener, there, back direction) (net.Conn, error) {
	out := &stream{network: n, direction: there, changed: make(chan struct{})}
	in := &stream{network: n, direction: back, changed: make(chan struct{})}
	near := &conn{network: n, local: there.from, remote: there.to, in: in, out: out}
	far := &conn{network: n, local: there.to, remote: there.from, in: out, out: in}
	near.otherEnd, far.otherEnd = far, near
	n.mu.Lock()
	n.conns[near], n.conns[far] = struct{}{}, struct{}{}
	n.mu.Unlock()
	var err error
	select {
	case l.incoming <- far:
		select {
		case <-l.closed: // Close of the listener may have missed this connection
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
	return nil, netError("dial", there.to, err)
}

// Cut interrupts the direction from one address to another.
func (n *Network) Cut(from, to string) {
	n.changeCondition(from, to, func(c *condition) { c.cut = true })
}

// Heal restores the direction from one address to another, and delivers the data that has waited.
func (n *Network) Heal(from, to string) {
	n.changeCondition(from, to, func(c *condition) { c.cut = false })
}

// CutBoth interrupts both directions between two addresses.
func (n *Network) CutBoth(a, b string) { n.Cut(a, b); n.Cut(b, a) }

// HealBoth restores both directions between two addresses.
func (n *Network) HealBoth(a, b string) { n.Heal(a, b); n.Heal(b, a) }

// Delay sets how long data needs from one address to another. It does not apply to data that was
// written before the call. The order of the data does not change.
func (n *Network) Delay(from, to string, d time.Duration) {
	n.changeCondition(from, to, func(c *condition) { c.delay = d })
}

func (n *Network) changeCondition(from, to string, change func(*condition)) {
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

func (n *Network) conditionOf(d direction) (condition, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.conditions[d], n.changed
}

// Reset breaks the connections between two addresses, even while the directions are interrupted. Both
// ends of each connection return errors immediately, and data in transit is lost.
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
		c.in.breakOff()
		c.out.breakOff()
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
		return nil, netError("accept", l.addr, net.ErrClosed)
	default:
	}
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, netError("accept", l.addr, net.ErrClosed)
	}
}

func (l *listener) Addr() net.Addr { return Addr(l.addr) }

// Close closes the listener, and the connections to it that were not accepted.
func (l *listener) Close() error {
	err := fmt.Errorf("testenv: listener at %s: %w", l.addr, net.ErrClosed)
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
