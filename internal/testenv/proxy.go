package testenv

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// ProxyConfig configures a [Proxy].
type ProxyConfig struct {
	// Target is the host:port of the server.
	Target string
	// DialTimeout is how long the proxy tries to connect to the server. If it is 0, the proxy tries once. If no
	// attempt succeeds, the proxy closes the connection of the client.
	DialTimeout time.Duration
	// Accept, if it is not nil, begins a connection of a client, for example with a TLS handshake, and returns the
	// connection from which the proxy reads and to which it writes. If Accept returns an error, the proxy closes
	// the connection.
	Accept func(ctx context.Context, client *net.TCPConn) (Duplex, error)
	// CopyHead, if it is not nil, copies the first bytes from the client to the server, and may change these bytes.
	// If CopyHead returns an error, the proxy closes the connection.
	CopyHead func(toServer io.Writer, fromClient io.Reader) error
}

// Duplex is a connection whose directions are closed separately, such as a *net.TCPConn or a *tls.Conn.
type Duplex interface {
	net.Conn
	CloseWrite() error
}

// Proxy is a TCP proxy for one server that can act as a network partition: while the proxy is cut, it passes
// neither bytes nor the close of a connection, and notifies neither side. Its methods may be called from any
// goroutine.
type Proxy struct {
	cfg      ProxyConfig
	listener net.Listener
	wg       sync.WaitGroup
	// ctx is canceled by Close.
	ctx    context.Context
	cancel context.CancelFunc
	// Both gates are closed while the proxy is cut.
	toServer, toClient *Gate

	mu     sync.Mutex
	target string
	idle   time.Duration // the idle limit of connections that clients open later; 0 for none
	conns  map[net.Conn]struct{}
}

// NewProxy starts a proxy on a free port of the loopback interface.
func NewProxy(cfg ProxyConfig) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{
		cfg: cfg, target: cfg.Target, listener: l, toServer: NewGate(), toClient: NewGate(), conns: map[net.Conn]struct{}{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.acceptConns)
	return p, nil
}

// Addr returns the host:port on which the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Port returns the port of Addr.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Cut stops all bytes in both directions, on existing and later connections.
func (p *Proxy) Cut() {
	p.toServer.Close()
	p.toClient.Close()
}

// CutAnswers stops only the bytes from the server to the clients.
func (p *Proxy) CutAnswers() {
	p.toServer.Open()
	p.toClient.Close()
}

// Heal ends Cut and CutAnswers. The proxy then delivers the bytes that it has stopped, as TCP would retransmit
// them.
func (p *Proxy) Heal() {
	p.toServer.Open()
	p.toClient.Open()
}

// SetTarget sets the server to which the proxy connects later clients.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// SetIdleLimit makes the proxy close both sides of each later connection on which it has received nothing for the
// time limit, as firewalls and load balancers do. If limit is 0, the proxy does not close idle connections.
func (p *Proxy) SetIdleLimit(limit time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = limit
}

// Drop closes all existing connections.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// Close stops the proxy, closes all connections, and waits until its goroutines have ended.
func (p *Proxy) Close() {
	p.cancel()
	p.listener.Close()
	p.Drop()
	p.wg.Wait()
}

func (p *Proxy) acceptConns() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.addConn(client) {
			p.wg.Go(func() {
				defer p.removeConn(client)
				p.serveConn(client.(*net.TCPConn))
			})
		}
	}
}

// addConn registers a connection, so that Drop and Close close it. If the proxy is closed, addConn closes the
// connection and returns false.
func (p *Proxy) addConn(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) removeConn(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) serveConn(accepted *net.TCPConn) {
	if _, err := p.toServer.Wait(p.ctx); err != nil {
		return
	}
	var client Duplex = accepted
	if p.cfg.Accept != nil {
		var err error
		if client, err = p.cfg.Accept(p.ctx, accepted); err != nil {
			return
		}
	}
	server := p.dialServer()
	if server == nil || !p.addConn(server) {
		return
	}
	defer p.removeConn(server)
	p.mu.Lock()
	limit, received := p.idle, func() {}
	p.mu.Unlock()
	if limit > 0 {
		timer := time.AfterFunc(limit, func() {
			client.Close()
			server.Close()
		})
		defer timer.Stop()
		received = func() { timer.Reset(limit) }
	}
	var both sync.WaitGroup
	both.Go(func() {
		if p.cfg.CopyHead != nil {
			if err := p.cfg.CopyHead(gatedWriter{p, server}, client); err != nil {
				p.closeConns(p.toServer, client, server)
				return
			}
		}
		p.copyBytes(p.toServer, server, client, received)
	})
	both.Go(func() { p.copyBytes(p.toClient, client, server, received) })
	both.Wait()
}

// dialServer connects to the server. It returns nil if the server does not accept the connection within
// DialTimeout.
func (p *Proxy) dialServer() *net.TCPConn {
	for end := time.Now().Add(p.cfg.DialTimeout); ; {
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		conn, err := net.Dial("tcp", target)
		if err == nil {
			return conn.(*net.TCPConn)
		}
		if !time.Now().Before(end) {
			return nil
		}
		select {
		case <-p.ctx.Done():
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// copyBytes copies the bytes of one direction of a connection, and then closes this direction at the receiver. It
// calls received after each read.
func (p *Proxy) copyBytes(gate *Gate, to, from Duplex, received func()) {
	buf := make([]byte, 32<<10)
	for {
		n, readErr := from.Read(buf)
		received()
		if _, err := gate.Wait(p.ctx); err != nil {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				p.closeConns(gate, from, to)
				return
			}
		}
		switch {
		case readErr == io.EOF:
			_ = to.CloseWrite()
			return
		case readErr != nil:
			p.closeConns(gate, from, to)
			return
		}
	}
}

// closeConns closes both sides of a connection as soon as the gate is open.
func (p *Proxy) closeConns(gate *Gate, a, b Duplex) {
	if _, err := gate.Wait(p.ctx); err != nil {
		return
	}
	a.Close()
	b.Close()
}

// gatedWriter writes to the server. Its method Write waits while the proxy is cut.
type gatedWriter struct {
	proxy *Proxy
	conn  *net.TCPConn
}

func (w gatedWriter) Write(b []byte) (int, error) {
	if _, err := w.proxy.toServer.Wait(w.proxy.ctx); err != nil {
		return 0, err
	}
	return w.conn.Write(b)
}

// StartTLSProxy starts a proxy that accepts TLS connections and forwards them to target without TLS, for servers
// that do not implement TLS. The channel receives the errors of failed handshakes. The proxy runs until the test
// ends.
func StartTLSProxy(t testing.TB, config *tls.Config, target string) (addr string, rejected <-chan error) {
	t.Helper()
	failures := make(chan error, 1000)
	accept := func(ctx context.Context, client *net.TCPConn) (Duplex, error) {
		conn := tls.Server(client, config)
		err := conn.HandshakeContext(ctx)
		if err != nil {
			failures <- err
		}
		return conn, err
	}
	p, err := NewProxy(ProxyConfig{Target: target, Accept: accept})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p.Addr(), failures
}
