package zkproxy

// One connection through the proxy. Each direction has a reader, which cuts
// the stream into frames, and a writer, which lets them wait as the faults
// demand and passes them on. Between them is a queue, so that a delay does not
// limit the rate.

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// queueLength is how many frames may wait in one direction before the sender
// feels it.
const queueLength = 1024

// Indices into what is kept per direction.
const (
	toServer = iota
	toClient
)

type conn struct {
	proxy  *Proxy
	number int
	client *net.TCPConn
	gates  [len(directions)]*gate // shut by a rule, for this connection only

	// ctx ends with the connection.
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	server  *net.TCPConn // nil until dialed
	session int64
	pending []request // forwarded and unanswered, in order
}

// request is what has to be remembered of a request until its reply.
type request struct {
	xid  int32
	op   int32
	path string
	rule *Handle // what to do with the reply; nil to pass it on
}

// frame is a piece of a stream that passes as one.
type frame struct {
	bytes []byte // with the length in front
	kind  frameKind
	due   time.Time // earliest moment to pass it on
}

type frameKind int

const (
	frameRaw       frameKind = iota // not to be understood
	frameHandshake                  // first frame in either direction
	frameMessage                    // a request, a reply or an event
	frameEnd                        // the sender says no more
	frameBreak                      // the sender cannot be read any more
)

// serve runs the connection until it ends.
func (c *conn) serve(target string) {
	defer c.drop()
	dialer := net.Dialer{Timeout: dialTimeout}
	dialed, err := dialer.DialContext(c.ctx, "tcp", target)
	if err != nil {
		return
	}
	c.mu.Lock()
	c.server = dialed.(*net.TCPConn)
	c.mu.Unlock()
	if c.ctx.Err() != nil {
		reset(c.server) // drop came too early to see it
		return
	}

	queues := [len(directions)]chan frame{}
	for way := range queues {
		queues[way] = make(chan frame, queueLength)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		// The server never speaks first, so how the client begins tells how
		// both directions are to be read.
		head, raw, err := readHead(c.client)
		if err != nil {
			c.enqueue(toServer, queues[toServer], lastFrame(toServer, err))
			return
		}
		wg.Go(func() { c.read(toClient, c.server, nil, raw, queues[toClient]) })
		c.read(toServer, c.client, head, raw, queues[toServer])
	})
	wg.Go(func() { c.write(toServer, c.server, queues[toServer]) })
	wg.Go(func() { c.write(toClient, c.client, queues[toClient]) })
	wg.Wait()
}

// drop resets both ends.
func (c *conn) drop() {
	c.end(reset)
}

func (c *conn) end(closeConn func(*net.TCPConn)) {
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

// read turns a stream into frames. head is what was read of it already.
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
			c.enqueue(way, queue, lastFrame(way, err))
			return
		}
		if !c.enqueue(way, queue, frame{bytes: bytes, kind: kind}) {
			return
		}
		kind = frameMessage
	}
}

// lastFrame is how a stream ends. A client may end its half and still wait for
// answers; a server that ends its half has closed.
func lastFrame(way int, err error) frame {
	if way == toServer && err == io.EOF {
		return frame{kind: frameEnd}
	}
	return frame{kind: frameBreak}
}

func (c *conn) enqueue(way int, queue chan<- frame, f frame) bool {
	f.due = time.Now().Add(c.proxy.delay(way))
	select {
	case queue <- f:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// write passes frames on, one after another, until the connection ends.
func (c *conn) write(way int, to *net.TCPConn, queue <-chan frame) {
	broken := false
	for {
		var f frame
		select {
		case <-c.ctx.Done():
			return
		case f = <-queue:
		}
		if !c.waitDue(f.due) || !c.pass(way) {
			return
		}
		switch f.kind {
		case frameEnd:
			to.CloseWrite()
			return
		case frameBreak:
			c.end(func(end *net.TCPConn) { end.Close() })
			return
		}
		if !c.handle(way, f) || broken {
			continue
		}
		// A receiver that has gone away must not be noticed by the sender
		// through a black hole in the other direction: it is the reader there
		// that sees it, and what it makes of it waits its turn.
		_, err := to.Write(f.bytes)
		broken = err != nil
	}
}

func (c *conn) waitDue(due time.Time) bool {
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

// pass waits in a black hole and says whether the connection still exists.
func (c *conn) pass(way int) bool {
	for {
		waited := false
		for _, g := range []*gate{c.proxy.gates[way], c.gates[way]} {
			w, err := g.wait(c.ctx)
			if err != nil {
				return false
			}
			waited = waited || w
		}
		if !waited { // then both were open, one right after the other
			return true
		}
	}
}

// handle notes a frame, applies the rules, and says whether to pass it on.
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
	rule := c.proxy.match(r.op, r.path)
	cut := rule != nil && rule.rule.Action == CutBeforeRequest
	c.mu.Lock()
	if r.op != OpConnect {
		r.session = c.session
	}
	if !cut {
		c.pending = append(c.pending, request{xid: r.xid, op: r.op, path: r.path, rule: rule})
	}
	c.mu.Unlock()
	c.proxy.record(c.number, Request, r, cut)
	if cut {
		c.drop()
		rule.fire()
	}
	return !cut
}

func (c *conn) handleReply(r message) bool {
	if r.event {
		c.mu.Lock()
		r.session = c.session
		c.mu.Unlock()
		c.proxy.record(c.number, Event, r, false)
		return true
	}
	answered := c.answered(&r)
	rule := answered.rule
	if rule == nil {
		c.proxy.record(c.number, Reply, r, false)
		return true
	}
	switch rule.rule.Action {
	case HoldReply:
		rule.fire()
		select {
		case <-rule.release.Done():
		case <-c.ctx.Done():
		}
		c.proxy.record(c.number, Reply, r, c.ctx.Err() != nil)
		return c.ctx.Err() == nil
	case DropReplyBlackhole:
		c.proxy.record(c.number, Reply, r, true)
		for _, g := range c.gates {
			g.shut()
		}
		context.AfterFunc(rule.release, c.drop)
	default: // CutAfterApplied
		c.proxy.record(c.number, Reply, r, true)
		c.drop()
	}
	rule.fire()
	return false
}

// answered finds the request that a reply belongs to, and completes the reply
// by what is known from it. Replies come in the order of requests, so it is
// the first with the same number.
func (c *conn) answered(r *message) request {
	if r.op == OpConnect {
		c.proxy.remember(r.session, r.credentials)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.op == OpConnect {
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
