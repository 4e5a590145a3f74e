package main

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// servers is the client library's list of servers. Names are looked up at each
// connection: they may not exist yet at the start, they change, and TLS needs them.
type servers struct {
	mu        sync.Mutex
	addresses []string
	next      int
	failed    int // since the last connection
}

// parseServers takes "host:port,...", where the port may be missing.
func parseServers(text string) (*servers, error) {
	s := &servers{}
	for _, a := range strings.Split(text, ",") {
		a = strings.TrimSpace(a)
		if a == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(a); err != nil {
			a = net.JoinHostPort(strings.Trim(a, "[]"), "2181")
		}
		s.addresses = append(s.addresses, a)
	}
	if len(s.addresses) == 0 {
		return nil, usage("--zookeeper-servers is required: host:port,...")
	}
	rand.Shuffle(len(s.addresses), func(i, j int) {
		s.addresses[i], s.addresses[j] = s.addresses[j], s.addresses[i]
	})
	return s, nil
}

func (s *servers) list() []string { return slices.Clone(s.addresses) }

// Init does nothing: the list is there.
func (s *servers) Init([]string) error { return nil }

func (s *servers) Len() int { return len(s.addresses) }

// Next is the server to try, and whether all have been tried in vain.
func (s *servers) Next() (server string, retryStart bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	server = s.addresses[s.next]
	s.next = (s.next + 1) % len(s.addresses)
	retryStart = s.failed >= len(s.addresses)
	if retryStart {
		s.failed = 0
	}
	s.failed++
	return server, retryStart
}

// Connected notes that a server has taken the client.
func (s *servers) Connected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = 0
}

// grants learns what session timeout the servers grant, which the client library keeps to
// itself, by looking on at each handshake.
type grants struct {
	tls *tls.Config // nil without

	mu      sync.Mutex
	granted time.Duration
	known   chan struct{} // closed with the first
}

func (g *grants) timeout() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.granted
}

func (g *grants) learn(d time.Duration) {
	if d <= 0 {
		return // an expired session
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.granted == 0 {
		close(g.known)
	}
	g.granted = d
}

// dial is the client library's dialer.
func (g *grants) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: timeout}
	if g.tls == nil {
		conn, err := dialer.Dial(network, address)
		if err != nil {
			return nil, err
		}
		return &handshake{Conn: conn, learn: g.learn}, nil
	}
	conn, err := tls.DialWithDialer(dialer, network, address, g.tls)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return &handshake{Conn: conn, learn: g.learn}, nil
}

// handshake reads along: the first answer is its length, the protocol's version and the
// timeout in milliseconds, four bytes each.
type handshake struct {
	net.Conn
	head  []byte // until there are 12 bytes
	learn func(time.Duration)
}

func (h *handshake) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	if missing := 12 - len(h.head); missing > 0 && n > 0 {
		h.head = append(h.head, b[:min(n, missing)]...)
		if len(h.head) == 12 {
			h.learn(time.Duration(int32(binary.BigEndian.Uint32(h.head[8:]))) * time.Millisecond)
		}
	}
	return n, err
}
