package demo

// A participant's way to ZooKeeper, which the demo can break.

import (
	"errors"
	"net"
	"sync"
	"time"
)

var errLinkDown = errors.New("the demo has taken this link down")

// link makes connections for one zk.Conn: its dial is a zk.Dialer.
type link struct {
	mu      sync.Mutex
	isCut   bool
	dropped bool
	wires   map[*wire]struct{}
}

func newLink() *link { return &link{wires: map[*wire]struct{}{}} }

func (l *link) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if l.down() {
		return nil, errLinkDown
	}
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut || l.dropped {
		conn.Close()
		return nil, errLinkDown
	}
	w := &wire{Conn: conn, link: l}
	l.wires[w] = struct{}{}
	return w, nil
}

func (l *link) down() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isCut || l.dropped
}

// cut makes a black hole of the link: connections seem to stay open and
// nothing arrives.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
}

// heal ends a cut. Bytes were lost, so connections are opened anew.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = false
	l.hangUp()
}

// drop ends the link for good, as the end of a process does: its sockets are
// closed, and the session is not.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped = true
	l.hangUp()
}

func (l *link) hangUp() {
	for w := range l.wires {
		w.Conn.Close()
		delete(l.wires, w)
	}
}

// wire is one connection over a link.
type wire struct {
	net.Conn
	link *link
}

func (w *wire) Read(p []byte) (int, error) {
	for {
		n, err := w.Conn.Read(p)
		if err != nil || !w.link.down() {
			return n, err
		}
	}
}

func (w *wire) Write(p []byte) (int, error) {
	if w.link.down() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

func (w *wire) Close() error {
	w.link.mu.Lock()
	delete(w.link.wires, w)
	w.link.mu.Unlock()
	return w.Conn.Close()
}
