//go:build unix

package dbserver

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// Proxy is a network to one server, which can be cut: one client is partitioned, and
// neither side is told. Its methods may be called from any goroutine.
type Proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	open  chan struct{} // closed while bytes pass
	mute  bool          // only what the server says is held up
	conns map[net.Conn]struct{}
	over  bool
}

// NewProxy listens on a free port of loopback.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("dbserver: a proxy: %w", err)
	}
	p := &Proxy{listener: l, target: target, open: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	close(p.open)
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut lets nothing pass from now on, not even the end of a connection.
func (p *Proxy) Cut() { p.cut(false) }

// CutAnswers lets nothing pass that the server says, and everything that it is told.
func (p *Proxy) CutAnswers() { p.cut(true) }

func (p *Proxy) cut(mute bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = mute
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default:
	}
}

// Heal lets pass what has waited, and what comes.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heal()
}

func (p *Proxy) heal() {
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// Drop ends the connections that there are.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// Close ends the proxy and all connections, and waits until they are gone.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.over = true
	p.listener.Close()
	for c := range p.conns {
		c.Close()
	}
	p.heal()
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	if !p.keep(client) {
		return
	}
	defer p.forget(client)
	p.pass(false)
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.keep(server) {
		return
	}
	defer p.forget(server)
	var both sync.WaitGroup
	both.Go(func() { p.pump(server, client, false) })
	both.Go(func() { p.pump(client, server, true) })
	both.Wait()
}

// pump passes on what comes from one end, the server or the client, and its end.
func (p *Proxy) pump(to, from net.Conn, server bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.pass(server)
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		switch {
		case err == io.EOF:
			_ = to.(*net.TCPConn).CloseWrite()
			return
		case err != nil:
			to.Close()
			from.Close()
			return
		}
	}
}

// pass waits while the network is cut for what comes from the server, or from the client.
func (p *Proxy) pass(server bool) {
	for {
		p.mu.Lock()
		open, free := p.open, p.mute && !server
		p.mu.Unlock()
		if free {
			return
		}
		<-open
		p.mu.Lock()
		same := p.open == open
		p.mu.Unlock()
		if same {
			return
		}
	}
}

func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.conns[c] = struct{}{}
	}
	return !p.over
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
