package zktest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

const (
	maxUnsent  = 4 << 20  // a client that leaves more than this unread is not read from either
	maxPending = 64 << 20 // and with this much it is cut off
)

// Reasons for which nothing is taken from, or given to, a connection.
const (
	holdFault uint8 = 1 << iota // black hole
	holdPause                   // the server is paused
	holdStall                   // the request at the head waits for the quorum
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
	dataWatches  connWatches
	childWatches connWatches
	fired        uint64 // see ensemble.fire
	ids          []authID
	since        time.Time
	gone         bool // has no session and no watches any more
	received     int64
	sent         int64
	last         Entry // the last request

	seq    int
	faults connFaults

	greeted bool // the handshake is done; only the goroutine that processes uses it

	isStranded atomic.Bool // view != nil, for those who do not hold the lock

	mu       sync.Mutex
	changed  sync.Cond
	in       []item
	inBytes  int
	busy     bool // somebody processes the head of in
	inline   bool // that is the reading goroutine, which flushes when it is done
	writing  bool // somebody writes
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

// item is something that arrived: a packet, or the end of the stream.
type item struct {
	frame  []byte
	due    time.Time // zero: at once
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
		if first && c.fourLetter(string(head[:])) {
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
		if !c.submit(item{frame: buf}) {
			break
		}
	}
	c.submit(item{eof: true})
}

// submit hands over what arrived: it is dealt with at once, unless a fault or an
// earlier request is in the way. It reports false if there is no use in reading on.
func (c *conn) submit(it item) bool {
	c.mu.Lock()
	for c.unsent > maxUnsent && !c.closed && !it.eof {
		c.changed.Wait()
	}
	if c.closed && !it.eof || c.inBytes > maxPending {
		c.mu.Unlock()
		return false
	}
	if c.inDelay > 0 {
		it.due = time.Now().Add(c.inDelay)
	}
	if c.busy || len(c.in) > 0 || c.inHold != 0 || c.inDelay > 0 {
		it.frame = append([]byte(nil), it.frame...)
		c.in = append(c.in, it)
		c.inBytes += len(it.frame)
		c.mu.Unlock()
		c.kick()
		return true
	}
	c.busy, c.inline = true, true
	c.mu.Unlock()
	stalled := c.process(&it)
	c.flush()
	c.finish(it, stalled)
	return true
}

// flush writes what is ready, which saves a change to the writing goroutine.
func (c *conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inline = false
	if !c.writing && c.ready() {
		c.writeOne()
	}
	if len(c.out) > 0 {
		c.changed.Broadcast()
	}
}

// finish gives the token back that process needed, and goes on with what arrived meanwhile.
func (c *conn) finish(it item, stalled bool) {
	c.mu.Lock()
	c.busy = false
	if stalled && !c.closed {
		it.frame = append([]byte(nil), it.frame...)
		it.due = time.Time{}
		c.in = append([]item{it}, c.in...)
		c.inBytes += len(it.frame)
		if !c.stranded() {
			c.inHold &^= holdStall
		} else {
			c.inHold |= holdStall
		}
	}
	more := len(c.in) > 0
	c.mu.Unlock()
	if more {
		c.kick()
	}
}

// kick deals with what waits in the queue, as far as it may be.
func (c *conn) kick() {
	for {
		c.mu.Lock()
		if c.busy || len(c.in) == 0 || c.inHold != 0 && !c.closed {
			c.mu.Unlock()
			return
		}
		if c.closed { // nobody to answer: only the end of the stream matters
			for len(c.in) > 1 && !c.in[0].eof {
				c.in = c.in[1:]
			}
		}
		it := c.in[0]
		if d := time.Until(it.due); !it.due.IsZero() && d > 0 && !c.closed {
			c.mu.Unlock()
			c.e.later(d, c.kick)
			return
		}
		c.in = c.in[1:]
		c.inBytes -= len(it.frame)
		c.busy = true
		c.mu.Unlock()
		stalled := c.process(&it)
		if stalled {
			c.finish(it, true)
			return
		}
		c.mu.Lock()
		c.busy = false
		c.mu.Unlock()
	}
}

// write sends what is queued until the connection ends.
func (c *conn) write() {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.nc.Close()
	for {
		switch {
		case c.closed:
			return
		case c.writing || c.outHold != 0:
		case len(c.out) > 0:
			if c.ready() {
				c.writeOne()
				continue
			}
			d := time.Until(c.out[0].due)
			c.mu.Unlock()
			c.e.later(d, c.signal)
			c.mu.Lock()
		case c.closing && !c.held:
			c.closed = true
			c.changed.Broadcast()
			return
		}
		c.changed.Wait()
	}
}

// ready reports whether there is something that may go out now.
func (c *conn) ready() bool {
	return !c.closed && c.outHold == 0 && len(c.out) > 0 &&
		(c.out[0].due.IsZero() || !time.Now().Before(c.out[0].due))
}

// writeOne writes the first chunk, without the lock.
func (c *conn) writeOne() {
	b := c.out[0].b
	if len(c.out) == 1 {
		c.out[0] = chunk{}
		c.out = c.out[:0]
	} else {
		c.out = c.out[1:]
	}
	c.writing = true
	c.mu.Unlock()
	// An error shows on the reading side too, and is dealt with there.
	c.nc.Write(b)
	c.mu.Lock()
	c.writing = false
	c.unsent -= len(b)
	if cap(b) <= 64<<10 {
		c.spare = b[:0]
	}
	if len(c.out) > 0 || c.closing || c.unsent+len(b) > maxUnsent {
		c.changed.Broadcast()
	}
}

func (c *conn) signal() {
	c.mu.Lock()
	c.changed.Broadcast()
	c.mu.Unlock()
}

// send queues a packet. Order of calls is order on the wire.
func (c *conn) send(b []byte) {
	c.mu.Lock()
	if c.held {
		c.behind = append(c.behind, b...)
	} else {
		c.queue(b, false)
	}
	c.mu.Unlock()
}

// queue adds b to what is to be sent. With quiet the caller sees to it that it goes out.
func (c *conn) queue(b []byte, quiet bool) {
	if c.closed || c.closing || len(b) == 0 {
		return
	}
	c.unsent += len(b)
	if c.unsent > maxPending {
		c.closed = true
		c.nc.Close()
		c.changed.Broadcast()
		return // the reader comes to its end now, and does the rest
	}
	var due time.Time
	if c.outDelay > 0 {
		due = time.Now().Add(c.outDelay)
	}
	if n := len(c.out); n > 0 && c.out[n-1].due.IsZero() && due.IsZero() {
		c.out[n-1].b = append(c.out[n-1].b, b...)
		return
	}
	buf := c.spare
	c.spare = nil
	c.out = append(c.out, chunk{b: append(buf, b...), due: due})
	if !quiet {
		c.changed.Broadcast()
	}
}

// answer queues a reply.
func (c *conn) answer(b []byte) {
	c.mu.Lock()
	c.queue(b, c.inline)
	c.mu.Unlock()
}

// holdBack keeps what is sent from now on behind a reply that is not decided yet.
func (c *conn) holdBack() {
	c.mu.Lock()
	c.held = true
	c.mu.Unlock()
}

// release sends the reply that was waited for and what came after it.
func (c *conn) release(reply []byte) {
	c.mu.Lock()
	c.held = false
	closing := c.closing
	c.closing = false // a close that came meanwhile waits for the reply too
	c.queue(reply, false)
	c.queue(c.behind, false)
	c.behind = nil
	c.closing = closing
	c.changed.Broadcast()
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
	c.e.unwatchAll(c)
	c.setView(nil)
	if c.sess != nil && c.sess.conn == c {
		c.sess.conn = nil
	}
}

// hangUp closes c when everything queued is sent. The caller holds the ensemble's lock.
func (c *conn) hangUp() {
	c.forget()
	c.mu.Lock()
	c.closing = true
	c.changed.Broadcast()
	c.mu.Unlock()
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
