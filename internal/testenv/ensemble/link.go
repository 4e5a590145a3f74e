package ensemble

// The links between servers that run as child processes: every server reaches
// every other one through a TCP proxy of ours, so that a link can be cut.

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// link carries the connections that one server opens to one port of another.
// While it is cut it is a black hole: it accepts connections and passes on
// neither bytes nor the end of a connection. What waits in it goes on when it
// is healed, as the network would send it again.
type link struct {
	listener net.Listener
	target   string
	election bool

	wg   sync.WaitGroup
	done chan struct{}

	mu    sync.Mutex
	open  chan struct{} // closed while bytes may pass
	conns map[net.Conn]struct{}
}

// newLink listens on a free loopback port. The election link takes care of
// the servers' greetings: see passGreeting.
func newLink(target string, election bool) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("link between servers: %w", err)
	}
	l := &link{
		listener: listener, target: target, election: election,
		done: make(chan struct{}), open: make(chan struct{}),
		conns: make(map[net.Conn]struct{}),
	}
	close(l.open)
	l.wg.Go(l.accept)
	return l, nil
}

func (l *link) port() int { return l.listener.Addr().(*net.TCPAddr).Port }

// setCut cuts or heals the link.
func (l *link) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
		if cut {
			l.open = make(chan struct{})
		}
	default:
		if !cut {
			close(l.open)
		}
	}
}

// pass waits while the link is cut and says whether the link still exists.
func (l *link) pass() bool {
	for {
		l.mu.Lock()
		open := l.open
		l.mu.Unlock()
		select {
		case <-l.done:
			return false
		case <-open:
		}
		l.mu.Lock()
		same := l.open == open
		l.mu.Unlock()
		if same {
			return true
		}
	}
}

// close ends the link and all its connections and waits for its goroutines.
func (l *link) close() {
	l.mu.Lock()
	close(l.done)
	l.listener.Close()
	for conn := range l.conns {
		conn.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

func (l *link) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		if !l.keep(conn) {
			return
		}
		l.wg.Go(func() {
			defer l.drop(conn)
			l.serve(conn.(*net.TCPConn))
		})
	}
}

// keep notes a connection for close; it refuses one that comes too late.
func (l *link) keep(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.done:
		conn.Close()
		return false
	default:
		l.conns[conn] = struct{}{}
		return true
	}
}

func (l *link) drop(conn net.Conn) {
	conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
}

func (l *link) serve(from *net.TCPConn) {
	if !l.pass() {
		return
	}
	to := l.dial()
	if to == nil {
		return // the caller sees its connection end
	}
	if !l.keep(to) {
		return
	}
	defer l.drop(to)

	var wg sync.WaitGroup
	wg.Go(func() {
		if l.election {
			if err := l.passGreeting(to, from); err != nil {
				l.hangUp(from, to)
				return
			}
		}
		l.pump(to, from)
	})
	wg.Go(func() { l.pump(from, to) })
	wg.Wait()
}

// dial connects to the target, or returns nil. It tries for a second: right
// after an election a follower often calls before its leader listens. Refused,
// it would call again; but here it was accepted already, and ending the
// connection would make it begin another election instead.
func (l *link) dial() *net.TCPConn {
	const (
		patience = time.Second
		interval = 10 * time.Millisecond
	)
	for end := time.Now().Add(patience); ; {
		conn, err := net.Dial("tcp", l.target)
		if err == nil {
			return conn.(*net.TCPConn)
		}
		if time.Now().After(end) {
			return nil
		}
		select {
		case <-l.done:
			return nil
		case <-time.After(interval):
		}
	}
}

// pump copies one direction.
func (l *link) pump(to, from *net.TCPConn) {
	buf := make([]byte, 32*1024)
	for {
		n, readErr := from.Read(buf)
		if !l.pass() {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				l.hangUp(from, to)
				return
			}
		}
		switch {
		case readErr == io.EOF:
			to.CloseWrite()
			return
		case readErr != nil:
			l.hangUp(from, to)
			return
		}
	}
}

// hangUp ends both ends of a connection, once the link lets that through.
func (l *link) hangUp(from, to *net.TCPConn) {
	if !l.pass() {
		return
	}
	from.Close()
	to.Close()
}

// passGreeting shortens the greeting that opens an election connection. It
// holds a protocol version below zero, the number of the server, and the
// server's own election address, at which a server with a higher number calls
// back: past our links. The older form of the greeting, the number alone, is
// still understood and makes it call back at the address it was configured
// with.
func (l *link) passGreeting(to io.Writer, from io.Reader) error {
	var head [8]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return err
	}
	if int64(binary.BigEndian.Uint64(head[:])) < 0 {
		var rest struct {
			Server int64
			Size   int32
		}
		if err := binary.Read(from, binary.BigEndian, &rest); err != nil {
			return err
		}
		if rest.Size < 0 || rest.Size > 4096 {
			return fmt.Errorf("greeting of %d bytes", rest.Size)
		}
		if _, err := io.CopyN(io.Discard, from, int64(rest.Size)); err != nil {
			return err
		}
		binary.BigEndian.PutUint64(head[:], uint64(rest.Server))
	}
	if !l.pass() {
		return net.ErrClosed
	}
	_, err := to.Write(head[:])
	return err
}
