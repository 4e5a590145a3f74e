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

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

const (
	maxUnsent  = 4 << 20  // while so many bytes wait for the client, the server reads no requests of the client
	maxPending = 64 << 20 // the server closes a connection if so many bytes wait for the client or for the server

	// handshakeLimit is the time after which the server, like a real server, closes a connection without a
	// handshake.
	handshakeLimit = 10 * time.Second
	// lastWriteLimit is how long the server waits, before it closes a connection, until the client has
	// read all packets.
	lastWriteLimit = time.Second
)

// The reasons why the server does not process the requests of a connection, or sends nothing to its
// client.
const (
	holdFault uint8 = 1 << iota // the connection is in a black hole
	holdPause                   // the server is paused
	holdStall                   // the next request waits until the server reaches the quorum
	holdReply                   // the reply to the last request waits until the server has caught up
)

// conn is a client connection. It has two goroutines: one reads and usually processes the requests,
// the other writes.
type conn struct {
	srv  *Server
	e    *ensemble
	nc   net.Conn
	addr string

	// The following fields are guarded by the lock of the ensemble.
	sess         *session
	view         *view // the tree that the client reads; nil for the current tree
	late         *lateReply
	dataWatches  connWatches
	childWatches connWatches
	fired        uint64 // takeWatchers stores the number of its call, so that no call returns a connection twice
	ids          []authID
	since        time.Time
	detached     bool // reports that detach has removed the session and the watches of the connection
	received     int64
	sent         int64
	last         Entry // the log entry of the last request

	seq        int
	faults     connFaults
	stopSilent func() // stops the timer that closes a connection without a handshake

	// The following fields belong to the goroutine that processes the requests.
	connected bool    // reports that the handshake is complete
	request   Request // reused for each request while no hook is set, because a hook may keep its request

	// isCut and isDetached are copies of isCutOff() and detached, for goroutines that do not hold the
	// lock of the ensemble.
	isCut, isDetached atomic.Bool

	mu          sync.Mutex
	changed     sync.Cond
	in          []item
	inBytes     int
	busy        bool // reports that a goroutine processes an item
	inline      bool // reports that the reading goroutine will write the replies
	writing     bool // reports that a goroutine writes chunks to the client
	waking      bool // reports that a timer will call wakeWriter when the first chunk is due
	inHold      uint8
	inDelay     time.Duration
	out         []chunk
	unsent      int
	outHold     uint8
	outDelay    time.Duration
	holding     bool // reports that After hooks have not decided about a reply yet; heldPackets must follow it
	heldPackets []byte
	closing     bool // reports that the writing goroutine must close the connection when all chunks are written
	closed      bool
	spare       []byte
}

// item is something that a client has sent: a packet, a four-letter word, or the end of the
// connection.
type item struct {
	frame  []byte
	due    time.Time // the time at which the item arrives; the zero value means now
	isWord bool      // reports that the item is a four-letter word instead of a packet
	eof    bool
	hooked bool // reports that the Before hooks of the item have run
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

// readPackets reads packets until the connection ends.
func (c *conn) readPackets() {
	br := bufio.NewReaderSize(c.nc, 8<<10)
	var head [4]byte
	var buf []byte
	for first := true; ; first = false {
		if _, err := io.ReadFull(br, head[:]); err != nil {
			break
		}
		if first && fourLetterWords[string(head[:])] != nil {
			c.submitItem(item{frame: head[:], isWord: true}, false)
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
		if !c.submitItem(item{frame: buf}, hasPacket(br)) {
			break
		}
	}
	c.submitItem(item{eof: true}, false)
}

// hasPacket reports whether br has buffered a complete packet.
func hasPacket(br *bufio.Reader) bool {
	if br.Buffered() < 4 {
		return false
	}
	head, _ := br.Peek(4)
	return uint64(br.Buffered()-4) >= uint64(binary.BigEndian.Uint32(head))
}

// clearHold removes why from the reasons for which the requests of c are not processed.
func (c *conn) clearHold(why uint8) {
	c.mu.Lock()
	c.inHold &^= why
	c.mu.Unlock()
}

// sendEvent queues a watch event. The caller holds the ensemble's lock.
func (c *conn) sendEvent(typ zk.EventType, path string) {
	if c.dropsEvent(OpNotification, path) {
		return
	}
	enc := wire.Encoder{B: c.e.eventBuf[:0]}
	start := enc.Begin()
	enc.WatchEvent(wire.WatchEvent{Type: int32(typ), State: int32(zk.StateSyncConnected), Path: path})
	enc.End(start)
	c.e.eventBuf = enc.B
	c.sent++
	c.send(enc.B)
	c.e.addLogEntry(Entry{Op: OpNotification, Session: c.sessionID(), Path: path, Event: typ, Zxid: c.e.treeOf(c).zxid, Server: c.srv.id})
}

// detach removes c from the ensemble together with the watches of c. The session of c remains. The
// caller holds the lock of the ensemble.
func (c *conn) detach() {
	if c.detached {
		return
	}
	c.detached = true
	c.isDetached.Store(true)
	c.stopSilent()
	c.e.removeAllWatches(c)
	c.late = nil
	if c.sess != nil && c.sess.pending == c && c.view != nil && c.view != c.srv.view {
		c.sess.pending = nil // never report this packet: c is cut off from the leader, although its server is not
	}
	c.setView(nil)
	if c.sess != nil && c.sess.conn == c {
		c.sess.conn = nil
	}
}

// closeWhenSent closes c when all queued packets are sent, but after a second even if the client has
// not read them. The caller holds the lock of the ensemble.
func (c *conn) closeWhenSent() {
	c.detach()
	c.mu.Lock()
	c.closing = true
	if c.writing {
		c.nc.SetWriteDeadline(time.Now().Add(lastWriteLimit))
	}
	c.changed.Broadcast()
	c.mu.Unlock()
}

// startHandshakeTimer closes c if no handshake arrives in time. The caller holds the lock of the
// ensemble.
func (c *conn) startHandshakeTimer() {
	c.stopSilent = c.e.startTimer(handshakeLimit, func() {
		c.e.mu.Lock()
		defer c.e.mu.Unlock()
		switch {
		case c.detached || c.e.closed:
		case c.srv.paused:
			c.startHandshakeTimer() // try again later, because a paused server closes no connection
		default:
			c.closeWhenSent()
		}
	})
}

// abort closes c immediately. Queued packets are lost. The caller holds the lock of the ensemble.
func (c *conn) abort() {
	c.detach()
	delete(c.srv.conns, c)
	c.mu.Lock()
	c.closed = true
	c.nc.Close()
	c.changed.Broadcast()
	c.mu.Unlock()
}

// handleEOF closes the connection after the client has closed its side.
func (c *conn) handleEOF() {
	c.e.mu.Lock()
	c.abort()
	c.e.mu.Unlock()
}

// accept starts to serve nc as the connection of a client.
func (s *Server) accept(nc net.Conn) error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.closed || s.stopped || s.refuses || s.rejectsClients {
		return errRefused
	}
	c := newConn(s, nc)
	s.e.connSeq++
	c.seq = s.e.connSeq
	c.since = s.e.nowLocked()
	c.setView(s.view)
	c.setFaults(s.faults)
	if s.paused {
		c.inHold |= holdPause
		c.outHold |= holdPause
	}
	s.conns[c] = struct{}{}
	c.startHandshakeTimer()
	s.e.goLocked(c.readPackets)
	s.e.goLocked(c.writeChunks)
	return nil
}

// connections returns the server's connections, oldest first. The caller holds e.mu.
func (s *Server) connections() []*conn {
	return slices.SortedFunc(maps.Keys(s.conns), func(a, b *conn) int { return cmp.Compare(a.seq, b.seq) })
}

var errRefused = errors.New("zktest: connection refused")
