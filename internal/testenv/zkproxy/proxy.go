// Package zkproxy is a TCP proxy between a ZooKeeper client and a server that
// knows where requests and replies begin and end. Tests put it in between to
// make the faults that are hard to meet otherwise: a request that is applied
// while its reply is lost, a link that goes dead without a word, a session
// that the server ends. It also keeps a log of all that passed, to count round
// trips and to see who was told what.
package zkproxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// Direction is one way through the proxy, or both.
type Direction int

const (
	ClientToServer Direction = 1 << iota
	ServerToClient

	Both = ClientToServer | ServerToClient
)

// directions are the single ones; conn and Proxy keep things per direction in
// arrays with the same order.
var directions = [...]Direction{ClientToServer, ServerToClient}

// dialTimeout bounds the way to the server.
const dialTimeout = 10 * time.Second

// Proxy is a running proxy. Its methods may be called from several goroutines
// and do not block, except Close and ExpireSession.
type Proxy struct {
	listener net.Listener
	wg       sync.WaitGroup
	gates    [len(directions)]*gate // shut by Blackhole

	mu       sync.Mutex
	target   string
	refuse   bool
	closed   bool
	delays   [len(directions)]time.Duration
	conns    map[*conn]struct{}
	accepted int
	rules    []*Handle
	records  []Record
	sessions map[int64]credentials
}

// New starts a proxy on a free loopback port that leads to the ZooKeeper
// server at target, a host:port.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("zkproxy: %w", err)
	}
	p := &Proxy{
		listener: listener,
		target:   target,
		gates:    [len(directions)]*gate{newGate(), newGate()},
		conns:    make(map[*conn]struct{}),
		sessions: make(map[int64]credentials),
	}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is the host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends the proxy and all connections through it, and waits until its
// goroutines have ended. Calling it again does nothing.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.DropConnections()
	p.wg.Wait()
}

// SetTarget makes connections from now on lead to another server. Present ones
// stay where they are: see [Proxy.DropConnections].
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// DropConnections resets all connections at once, towards client and server,
// also in a black hole. What was on its way is lost.
func (p *Proxy) DropConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.drop()
	}
}

// Refuse says whether connections from now on are reset as soon as they are
// made. Present ones stay.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Blackhole makes everything stop in the given direction, on present and new
// connections, without a sign: also the end of a connection is not passed on.
// New connections are accepted. A frame that is being written may still pass.
func (p *Proxy) Blackhole(dir Direction) {
	for i, d := range directions {
		if dir&d != 0 {
			p.gates[i].shut()
		}
	}
}

// Unblackhole ends all that Blackhole began. What was held back then goes on,
// as TCP would send it again: requests of a client that has long gone away
// too. Where they should be lost, call [Proxy.DropConnections] before.
func (p *Proxy) Unblackhole() {
	for _, g := range p.gates {
		g.release()
	}
}

// Delay makes every frame that arrives from now on take d longer in the given
// direction. Zero ends it. Frames keep their order and overlap: the delay adds
// to the latency and does not limit the rate.
func (p *Proxy) Delay(dir Direction, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, each := range directions {
		if dir&each != 0 {
			p.delays[i] = d
		}
	}
}

func (p *Proxy) delay(way int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delays[way]
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.admit(client.(*net.TCPConn))
	}
}

// admit begins to serve a connection, or resets it.
func (p *Proxy) admit(client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse {
		reset(client)
		return
	}
	p.accepted++
	ctx, cancel := context.WithCancel(context.Background())
	c := &conn{
		proxy: p, number: p.accepted, client: client,
		gates: [len(directions)]*gate{newGate(), newGate()},
		ctx:   ctx, cancel: cancel,
	}
	p.conns[c] = struct{}{}
	target := p.target
	p.wg.Go(func() {
		c.serve(target)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	})
}

// reset closes a connection so that its other end sees a reset.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}
