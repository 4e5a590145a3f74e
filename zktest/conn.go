package zktest

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

const (
	maxUnsent  = 4 << 20  // a client that leaves more than this unread is not read from either
	maxPending = 64 << 20 // and with this much it is cut off

	// A connection without a handshake is closed after this time, as by a real server.
	handshakeLimit = 10 * time.Second
	// For how long a client may leave unread what it is sent before its connection is closed.
	lastWords = time.Second
)

// Reasons for which nothing is taken from, or given to, a connection.
const (
	holdFault  uint8 = 1 << iota // black hole
	holdPause                    // the server is paused
	holdStall                    // the request at the head waits for the quorum
	holdAnswer                   // the answer to the last request waits until the server has caught up
)

// conn is one client connection. Two goroutines belong to it: one reads and, as
// a rule, deals with the requests, the other one writes.
type conn struct {
	srv  *Server
	e    *ensemble
	nc   net.Conn
	addr string

	// Guarded by the ensemble's lock.
	sess         *session
	view         *view // nil: up to date
	late         *lateAnswer
	dataWatches  connWatches
	childWatches connWatches
	fired        uint64 // see ensemble.fire
	ids          []authID
	since        time.Time
	gone         bool // has no session and no watches any more
	received     int64
	sent         int64
	last         Entry // the last request

	seq        int
	faults     connFaults
	stopSilent func() // the timer that closes a connection without a handshake

	// For the goroutine that processes.
	greeted bool    // the handshake is done
	asked   Request // while there are no hooks, who may keep theirs

	// Copies of cutOff() and gone for goroutines that do not hold the ensemble's lock.
	isCut, over atomic.Bool

	mu       sync.Mutex
	changed  sync.Cond
	in       []item
	inBytes  int
	busy     bool // somebody processes the head of in
	inline   bool // the reading goroutine sees to it that replies go out
	writing  bool // somebody writes
	waking   bool // there is a timer for what is not due yet
	inHold   uint8
	inDelay  time.Duration
	out      []chunk
	unsent   int
	outHold  uint8
	outDelay time.Duration
	held     bool // a reply is being decided about; what comes after it waits in behind
	behind   []byte
	closing  bool // close when everything is sent
	closed   bool
	spare    []byte
}

// item is something that arrived: a packet, a four-letter word, or the end of the stream.
type item struct {
	frame  []byte
	due    time.Time // zero: at once
	word   bool      // four letters instead of a packet
	eof    bool
	hooked bool // its Before hooks have run
}

type chunk struct {
	b   []byte
	due time.Time
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		srv: s, e: s.e, nc: nc, dataWatches: make(connWatches), childWatches: make(connWatches),
		addr: "127.0.0.1",
	}
	if host, _, err := net.SplitHostPort(nc.RemoteAddr().String()); err == nil {
		c.addr = host
	}
	c.ids = []authID{{"ip", c.addr}}
	c.changed.L = &c.mu
	return c
}

func (c *conn) sessionID() int64 {
	if c.sess == nil {
		return 0
	}
	return c.sess.id
}

// read takes packets off the wire until there are no more.
func (c *conn) read() {
	br := bufio.NewReaderSize(c.nc, 8<<10)
	var head [4]byte
	var buf []byte
	for first := true; ; first = false {
		if _, err := io.ReadFull(br, head[:]); err != nil {
			break
		}
		if first && fourLetterWords[string(head[:])] != nil {
			c.submit(item{frame: head[:], word: true}, false)
			continue
		}
		n := int(int32(binary.BigEndian.Uint32(head[:])))
		if n < 0 || n > c.e.cfg.maxPacket {
			break
		}
		if cap(buf) < n || cap(buf) > 64<<10 {
			buf = make([]byte, n, max(n, 512))
		}
		buf = buf[:n]
		if _, err := io.ReadFull(br, buf); err != nil {
			break
		}
		if !c.submit(item{frame: buf}, packetIn(br)) {
			break
		}
	}
	c.submit(item{eof: true}, false)
}

// packetIn reports whether br holds a whole packet already.
func packetIn(br *bufio.Reader) bool {
	if br.Buffered() < 4 {
		return false
	}
	head, _ := br.Peek(4)
	return uint64(br.Buffered()-4) >= uint64(binary.BigEndian.Uint32(head))
}

// unhold ends one of the reasons for which nothing is taken from c.
func (c *conn) unhold(why uint8) {
	c.mu.Lock()
	c.inHold &^= why
	c.mu.Unlock()
}

// sendEvent queues a watch event. The caller holds the ensemble's lock.
func (c *conn) sendEvent(typ zk.EventType, path string) {
	enc := wire.Encoder{B: c.e.eventBuf[:0]}
	start := enc.Begin()
	enc.ReplyHeader(-1, -1, 0)
	enc.Int(int32(typ))
	enc.Int(int32(zk.StateSyncConnected))
	enc.String(path)
	enc.End(start)
	c.e.eventBuf = enc.B
	c.sent++
	c.send(enc.B)
}

// forget takes c out of the ensemble: its watches go, its session stays.
// The caller holds the ensemble's lock.
func (c *conn) forget() {
	if c.gone {
		return
	}
	c.gone = true
	c.over.Store(true)
	c.stopSilent()
	c.e.unwatchAll(c)
	c.late = nil
	if c.sess != nil && c.sess.pending == c && c.view != nil && c.view != c.srv.view {
		c.sess.pending = nil // its separate server will not report it
	}
	c.setView(nil)
	if c.sess != nil && c.sess.conn == c {
		c.sess.conn = nil
	}
}

// hangUp closes c when everything queued is sent, or the client has not read it for a
// second. The caller holds the ensemble's lock.
func (c *conn) hangUp() {
	c.forget()
	c.mu.Lock()
	c.closing = true
	if c.writing {
		c.nc.SetWriteDeadline(time.Now().Add(lastWords))
	}
	c.changed.Broadcast()
	c.mu.Unlock()
}

// limitHandshake closes c if no handshake arrives in time. The caller holds the ensemble's lock.
func (c *conn) limitHandshake() {
	c.stopSilent = c.e.timer(handshakeLimit, func() {
		c.e.mu.Lock()
		defer c.e.mu.Unlock()
		switch {
		case c.gone || c.e.closed:
		case c.srv.paused:
			c.limitHandshake() // a paused server does not close anything
		default:
			c.hangUp()
		}
	})
}

// abort closes c at once. What is not on the wire yet is lost. The caller holds
// the ensemble's lock.
func (c *conn) abort() {
	c.forget()
	delete(c.srv.conns, c)
	c.mu.Lock()
	c.closed = true
	c.nc.Close()
	c.changed.Broadcast()
	c.mu.Unlock()
}

// ended is what is left to do when the client's side of the stream is over.
func (c *conn) ended() {
	c.e.mu.Lock()
	c.abort()
	c.e.mu.Unlock()
}

// accept makes nc a client connection.
func (s *Server) accept(nc net.Conn) error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.closed || s.stopped || s.refuses || s.gaveUp {
		return errRefused
	}
	c := newConn(s, nc)
	s.e.connSeq++
	c.seq = s.e.connSeq
	c.since = s.e.nowLocked()
	c.setView(s.view)
	c.apply(s.faults)
	if s.paused {
		c.inHold |= holdPause
		c.outHold |= holdPause
	}
	s.conns[c] = struct{}{}
	c.limitHandshake()
	s.e.goLocked(c.read)
	s.e.goLocked(c.write)
	return nil
}

// connections lists the server's connections, oldest first. The caller holds e.mu.
func (s *Server) connections() []*conn {
	return slices.SortedFunc(maps.Keys(s.conns), func(a, b *conn) int { return cmp.Compare(a.seq, b.seq) })
}

var errRefused = errors.New("zktest: connection refused")
