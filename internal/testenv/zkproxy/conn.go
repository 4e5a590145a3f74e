package zkproxy

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// queueLength is the number of frames that can wait in one direction before the proxy stops reading.
const queueLength = 1024

// conn is one connection through the proxy. For each direction there is a reader, which splits the stream into
// frames, and a writer, which delays the frames and forwards them. Frames wait in a queue between the reader and
// the writer, so that a delay does not limit the rate.
type conn struct {
	proxy  *Proxy
	number int
	client *net.TCPConn
	// gates stop the packets of this connection only. A rule closes them.
	gates gates

	// ctx is canceled when the connection ends.
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	server  *net.TCPConn // nil until the connection to the server is established
	session int64
	pending []request // requests that were forwarded and not answered, in the order in which they were sent
}

// request describes a request until the proxy receives its reply.
type request struct {
	xid  int32
	op   wire.Op
	path string
	rule *Handle // the rule that applies to the reply, or nil
}

// frame is a part of a stream that the proxy forwards in one piece.
type frame struct {
	bytes []byte // the frame, including the length at its beginning
	kind  frameKind
	due   time.Time // the proxy does not forward the frame before this time
}

type frameKind int

const (
	frameRaw       frameKind = iota // bytes of a protocol that has no frames
	frameHandshake                  // the first frame of a direction
	frameMessage                    // a request, a reply or an event
	frameEOF                        // the sender has closed its side of the connection
	frameError                      // reading from the sender has failed
)

// serve forwards frames until the connection ends.
func (c *conn) serve(target string) {
	defer c.reset()
	dialer := net.Dialer{Timeout: dialTimeout}
	dialed, err := dialer.DialContext(c.ctx, "tcp", target)
	if err != nil {
		return
	}
	c.mu.Lock()
	c.server = dialed.(*net.TCPConn)
	c.mu.Unlock()
	if c.ctx.Err() != nil {
		resetConn(c.server) // reset was called before this connection existed, so reset it now
		return
	}

	queues := [len(directions)]chan frame{}
	for way := range queues {
		queues[way] = make(chan frame, queueLength)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		// A ZooKeeper server sends nothing before the client does, so the first bytes of the client determine the
		// protocol of both directions.
		head, raw, err := readHead(c.client)
		if err != nil {
			c.enqueue(toServer, queues[toServer], endFrame(toServer, err))
			return
		}
		wg.Go(func() { c.read(toClient, c.server, nil, raw, queues[toClient]) })
		c.read(toServer, c.client, head, raw, queues[toServer])
	})
	wg.Go(func() { c.write(toServer, c.server, queues[toServer]) })
	wg.Go(func() { c.write(toClient, c.client, queues[toClient]) })
	wg.Wait()
}

// reset closes the connections to the client and to the server by a TCP reset.
func (c *conn) reset() {
	c.closeBoth(resetConn)
}

func (c *conn) closeBoth(closeConn func(*net.TCPConn)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return
	}
	c.cancel()
	closeConn(c.client)
	if c.server != nil {
		closeConn(c.server)
	}
}

// read splits the stream of one direction into frames, and adds the frames to queue. head contains the bytes that
// the caller has read from the stream. If raw is set, the protocol has no frames.
func (c *conn) read(way int, from io.Reader, head []byte, raw bool, queue chan<- frame) {
	kind := frameHandshake
	for {
		var bytes []byte
		var err error
		if raw {
			kind = frameRaw
			bytes, err = readChunk(from, head)
		} else {
			bytes, err = readFrame(from, head)
		}
		head = nil
		if err != nil {
			c.enqueue(way, queue, endFrame(way, err))
			return
		}
		if !c.enqueue(way, queue, frame{bytes: bytes, kind: kind}) {
			return
		}
		kind = frameMessage
	}
}

// endFrame returns the last frame of a stream. If a client closes its side of the connection, the client may still
// wait for replies. If a server closes its side, the connection is over.
func endFrame(way int, err error) frame {
	if way == toServer && err == io.EOF {
		return frame{kind: frameEOF}
	}
	return frame{kind: frameError}
}

func (c *conn) enqueue(way int, queue chan<- frame, f frame) bool {
	f.due = time.Now().Add(c.proxy.delayOf(way))
	select {
	case queue <- f:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// write forwards the frames of one direction until the connection ends.
func (c *conn) write(way int, to *net.TCPConn, queue <-chan frame) {
	broken := false
	for {
		var f frame
		select {
		case <-c.ctx.Done():
			return
		case f = <-queue:
		}
		if !c.waitUntil(f.due) || !c.waitGates(way) {
			return
		}
		switch f.kind {
		case frameEOF:
			to.CloseWrite()
			return
		case frameError:
			c.closeBoth(func(end *net.TCPConn) { end.Close() })
			return
		}
		if !c.handle(way, f) || broken {
			continue
		}
		// After an error, discard the later frames, but do not close the connection to the sender: while the other
		// direction is a black hole, the sender must not notice that the receiver has closed its connection. The
		// reader of the other direction detects the close, and its last frame waits at the gate.
		_, err := to.Write(f.bytes)
		broken = err != nil
	}
}

func (c *conn) waitUntil(due time.Time) bool {
	left := time.Until(due)
	if left <= 0 {
		return true
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// waitGates waits until the direction way is not a black hole any more. It returns false if the connection ends
// first.
func (c *conn) waitGates(way int) bool {
	for {
		waited := false
		for _, g := range []*testenv.Gate{c.proxy.gates[way], c.gates[way]} {
			w, err := g.Wait(c.ctx)
			if err != nil {
				return false
			}
			waited = waited || w
		}
		if !waited { // both gates were open when they were checked
			return true
		}
	}
}

// handle records a frame and applies the rules. It reports whether the caller must forward the frame.
func (c *conn) handle(way int, f frame) bool {
	if f.kind == frameRaw {
		return true
	}
	body := f.bytes[lengthSize:]
	if way == toServer {
		r, ok := parseRequest(body, f.kind == frameHandshake)
		return !ok || c.handleRequest(r)
	}
	r, ok := parseReply(body, f.kind == frameHandshake)
	return !ok || c.handleReply(r)
}

func (c *conn) handleRequest(r message) bool {
	rule := c.proxy.takeRule(r.op, r.path)
	cut := rule != nil && rule.rule.Action == CutBeforeRequest
	c.mu.Lock()
	if r.op != wire.Connect {
		r.session = c.session
	}
	if !cut {
		c.pending = append(c.pending, request{xid: r.xid, op: r.op, path: r.path, rule: rule})
	}
	c.mu.Unlock()
	c.proxy.addRecord(c.number, Request, r, cut)
	if cut {
		c.reset()
		rule.markApplied()
	}
	return !cut
}

func (c *conn) handleReply(r message) bool {
	if r.event {
		c.mu.Lock()
		r.session = c.session
		c.mu.Unlock()
		c.proxy.addRecord(c.number, Event, r, false)
		return true
	}
	rule := c.takeRequest(&r).rule
	if rule == nil {
		c.proxy.addRecord(c.number, Reply, r, false)
		return true
	}
	switch rule.rule.Action {
	case HoldReply:
		rule.markApplied()
		select {
		case <-rule.released.Done():
		case <-c.ctx.Done():
		}
		c.proxy.addRecord(c.number, Reply, r, c.ctx.Err() != nil)
		return c.ctx.Err() == nil
	case DropReplyBlackhole:
		c.proxy.addRecord(c.number, Reply, r, true)
		for _, g := range c.gates {
			g.Close()
		}
		context.AfterFunc(rule.released, c.reset)
	default: // the action is CutAfterApplied
		c.proxy.addRecord(c.number, Reply, r, true)
		c.reset()
	}
	rule.markApplied()
	return false
}

// takeRequest removes and returns the request to which r is the reply, and copies the operation and the path of the
// request to r. A server answers requests in order, so this request is the first waiting request with the number of
// the reply.
func (c *conn) takeRequest(r *message) request {
	if r.op == wire.Connect {
		c.proxy.addSession(r.session, r.credentials)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.op == wire.Connect {
		c.session = r.session
	}
	r.session = c.session
	for i, q := range c.pending {
		if q.xid == r.xid {
			c.pending = append(c.pending[:i], c.pending[i+1:]...)
			r.op, r.path = q.op, q.path
			return q
		}
	}
	return request{}
}
