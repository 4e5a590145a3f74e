// Package zkproxy implements a proxy between a ZooKeeper client and its server that injects faults: a request that
// the server applies while its reply is lost, a network that silently stops, a session that expires. The proxy
// decodes the messages of ZooKeeper's protocol and records them, so that tests can count round trips and verify
// which events a client has received.
package zkproxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// Direction is one direction of a connection, or both.
type Direction int

const (
	ClientToServer Direction = 1 << iota
	ServerToClient

	Both = ClientToServer | ServerToClient
)

// directions contains the two single directions, in the order of the indexes toServer and toClient.
var directions = [...]Direction{ClientToServer, ServerToClient}

// The indexes of arrays with one element for each direction.
const (
	toServer = iota
	toClient
)

// gates contains a gate for each direction. A closed gate stops the packets of its direction.
type gates [len(directions)]*testenv.Gate

func newGates() gates { return gates{testenv.NewGate(), testenv.NewGate()} }

// dialTimeout is the time limit within which the proxy must connect to the server.
const dialTimeout = 10 * time.Second

// Proxy is a running proxy. Its methods may be called from any goroutine. Only Close and ExpireSession block.
type Proxy struct {
	listener net.Listener
	wg       sync.WaitGroup
	// gates stop the packets of all connections. Blackhole closes the gates.
	gates gates

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

// New starts a proxy for the server at target, a host:port, on a free port of the loopback
// interface.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("zkproxy: %w", err)
	}
	p := &Proxy{
		listener: listener,
		target:   target,
		gates:    newGates(),
		conns:    make(map[*conn]struct{}),
		sessions: make(map[int64]credentials),
	}
	p.wg.Go(p.acceptConns)
	return p, nil
}

// Addr returns the host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close stops the proxy, resets all connections, and waits until its goroutines have ended.
// Further calls do nothing.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.DropConnections()
	p.wg.Wait()
}

// SetTarget sets the server to which the proxy connects later clients. Existing connections remain at their server;
// see [Proxy.DropConnections].
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// DropConnections immediately resets all connections on both sides, even in a black hole.
// Messages in transit are lost.
func (p *Proxy) DropConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.reset()
	}
}

// Refuse makes the proxy reset later connections immediately, or accept connections again. Existing connections
// remain open.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Blackhole silently stops all messages in the given direction, on existing and later connections. It also stops
// the close of a connection. The proxy accepts later connections. A message that the proxy is writing may still
// pass.
func (p *Proxy) Blackhole(dir Direction) {
	for i, d := range directions {
		if dir&d != 0 {
			p.gates[i].Close()
		}
	}
}

// Unblackhole ends Blackhole in both directions. The proxy then delivers the messages that it has stopped, as TCP
// would retransmit them, even requests of a client that has closed its connection in the meantime. To lose these
// messages, call [Proxy.DropConnections] first.
func (p *Proxy) Unblackhole() {
	for _, g := range p.gates {
		g.Open()
	}
}

// Delay makes each later message in the given direction take d longer. If d is 0, the delay ends.
// Messages keep their order. The delay adds to the latency, but does not limit the rate.
func (p *Proxy) Delay(dir Direction, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, each := range directions {
		if dir&each != 0 {
			p.delays[i] = d
		}
	}
}

func (p *Proxy) delayOf(way int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delays[way]
}

func (p *Proxy) acceptConns() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.addConn(client.(*net.TCPConn))
	}
}

// addConn starts to serve a new connection, or resets it if connections are refused.
func (p *Proxy) addConn(client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse {
		resetConn(client)
		return
	}
	p.accepted++
	ctx, cancel := context.WithCancel(context.Background())
	c := &conn{
		proxy: p, number: p.accepted, client: client,
		gates: newGates(),
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

// resetConn closes a connection in such a way that the other side receives a reset.
func resetConn(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}
