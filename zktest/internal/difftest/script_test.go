package difftest

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

var (
	open   = []wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}
	secret = []wire.ACL{{Perms: 31, Scheme: "auth"}}
)

func request(o wire.Op, path string, more ...func(*wire.Request)) wire.Request {
	r := wire.Request{Path: path, Version: -1, TTL: -1, ACL: open}
	r.Op = o
	for _, f := range more {
		f(&r)
	}
	return r
}

func withFlags(n int32) func(*wire.Request)         { return func(r *wire.Request) { r.Flags = n } }
func withTTL(ms int64) func(*wire.Request)          { return func(r *wire.Request) { r.TTL = ms } }
func withBody(b string) func(*wire.Request)         { return func(r *wire.Request) { r.Data = []byte(b) } }
func withWatch(r *wire.Request)                     { r.Watch = true }
func withACL(l []wire.ACL) func(*wire.Request)      { return func(r *wire.Request) { r.ACL = l } }
func withOps(o ...wire.Request) func(*wire.Request) { return func(r *wire.Request) { r.Ops = o } }

// TestCompare_ScriptsHaveEqualReplies checks that no reply or event differs in the scripts, which cover requests
// that are rare, or that random requests must not contain. The scripts use the same servers and different znodes.
func TestCompare_ScriptsHaveEqualReplies(t *testing.T) {
	p := newPair(t, 300*time.Millisecond)
	for k := range 3 {
		p.connectClient(k, false, 30*time.Second)
	}
	for _, s := range []struct {
		name string
		run  func(*serverPair)
	}{
		{"undefined requests", runUndefinedRequests},
		{"malformed requests", runMalformedRequests},
		{"watch order", runWatchOrder},
		{"recursive", runRecursiveWatches},
		{"filtered events", runFilteredEvents},
		{"sequence", runSequences},
		{"multi", runMultis},
		{"pipeline", runPipeline},
		{"handshake", runHandshakes},
		{"moved session", runMovedSession},
		{"expiry", runExpiry},
		{"sweep", runContainerAndTTLSweep},
		{"four-letter words", runFourLetters},
	} {
		start := time.Now()
		s.run(p)
		t.Logf("%s: %v", s.name, time.Since(start).Round(time.Millisecond))
	}
}

// runUndefinedRequests sends requests whose results the protocol does not define.
func runUndefinedRequests(p *serverPair) {
	p.compare(0, false, request(wire.Create, "/odd"))
	// Compare creates in a multi, in which the create mode determines the kind of the znode, and an
	// invalid mode makes the packet malformed.
	for _, o := range []wire.Op{wire.Create, wire.Create2, wire.CreateContainer} {
		for _, f := range []int32{0, 2, 3, 5, 6, 7} {
			p.compare(0, false, request(wire.Multi, "", withOps(request(o, "/odd/m-", withFlags(f)))))
		}
	}
	p.compare(0, false, request(wire.Multi, "", withOps(request(wire.CreateTTL, "/odd/t", withFlags(0), withTTL(1000)))))
	p.compare(0, false, request(wire.Multi, "", withOps(request(wire.CreateTTL, "/odd/t", withFlags(5), withTTL(3600000)))))
	// Compare plain creates with the mode of a container, which create persistent znodes.
	p.compare(0, false, request(wire.Create, "/odd/c", withFlags(4)), request(wire.Create2, "/odd/d", withFlags(4)), request(wire.Create, "/odd/e", withFlags(5)))
	p.compare(0, false, request(wire.CreateContainer, "/odd/f", withFlags(1)), request(wire.CreateContainer, "/odd/f-", withFlags(3)))
	p.compare(0, false, request(wire.GetChildren2, "/odd"), request(wire.GetEphemerals, "/odd"))
	p.compare(0, false, request(wire.Reconfig, ""), request(wire.DeleteContainer, "", withBody("/odd/c")), request(wire.CreateSession, ""))
	p.compare(0, false, request(wire.RemoveWatches, "/odd", withFlags(9)), request(wire.CheckWatches, "/odd", withFlags(4)),
		request(wire.CheckWatches, "/odd", withFlags(3)), request(wire.AddWatch, "/odd", withFlags(7)))
	p.compare(0, false, request(wire.Exists, "/odd", withWatch), request(wire.CheckWatches, "/odd", withFlags(2)), request(wire.CheckWatches, "/odd", withFlags(1)),
		request(wire.RemoveWatches, "/odd", withFlags(1)), request(wire.RemoveWatches, "/odd", withFlags(3)), request(wire.RemoveWatches, "/odd", withFlags(3)))
	p.compare(0, false, request(wire.WhoAmI, ""))
	p.compare(0, false, request(wire.SASL, "", withBody("\x00\x00\x00\x05token")), request(wire.SASL, "", withBody("\x00\x00\x00\x00")), request(wire.Exists, "/odd"))
}

// runMalformedRequests sends malformed bodies, which are answered with an error, and packets after
// which the server closes the connection.
func runMalformedRequests(p *serverPair) {
	for _, o := range []wire.Op{
		wire.Create, wire.Delete, wire.Exists, wire.GetData, wire.SetData, wire.GetACL, wire.SetACL, wire.GetChildren,
		wire.GetChildren2, wire.Sync, wire.Check, wire.Multi, wire.MultiRead, wire.SetWatches, wire.AddWatch, wire.Create2,
	} {
		for _, b := range []string{"", "\x00", "\x7f\xff\xff\xff", "\xff\xff\xff\xfb/a", "\x00\x00\x00\x02/"} {
			c := [2][]string{}
			p.addHistory("malformed %v %q", o, b)
			for i, x := range p.targets {
				lines, err := x.clients[0].exchangeRaw(int32(o), []byte(b))
				if err != nil {
					p.failf("exchange with %s: %v", x.name, err)
				}
				c[i] = lines
			}
			if !slices.Equal(c[0], c[1]) {
				p.failf("%v with body %q\n  real   %s\n  zktest %s", o, b, c[0], c[1])
			}
		}
	}
	for _, x := range []struct {
		op   wire.Op
		body string
	}{
		{99, ""},
		{108, "x"},
		{wire.Notification, ""},
		{wire.Error, ""},
		{wire.SASL, "\xff\xff\xff\xff"},
		{wire.SASL, "\x00\x00"},
		{wire.Auth, "\x00"},
		{wire.Auth, "\x00\x00\x00\x00\x00\x00\x00\x05world\x00\x00\x00\x06anyone"},
	} {
		var out [2][]string
		p.addHistory("closing %v %q", x.op, x.body)
		for i, s := range p.targets {
			lines, err := s.clients[0].exchangeRaw(int32(x.op), []byte(x.body))
			if err != nil {
				p.failf("exchange with %s: %v", s.name, err)
			}
			if lines[len(lines)-1] != "closed" {
				if b, err := s.clients[0].readFrame(); err == nil {
					p.failf("%s sends another packet after %q instead of closing the connection: %q", s.name, lines, b)
				}
			}
			out[i] = lines
		}
		if !slices.Equal(out[0], out[1]) {
			p.failf("%v with body %q\n  real   %s\n  zktest %s", x.op, x.body, out[0], out[1])
		}
		p.connectClient(0, true, 30*time.Second)
	}
	for _, raw := range []string{"\x00\x00\x00\x02ab", "\xff\xff\xff\xfeab", "\x00\x10\x00\x00ab"} {
		var out [2]string
		for i, s := range p.targets {
			c := s.clients[0]
			if _, err := c.nc.Write([]byte(raw)); err != nil {
				p.failf("write to %s: %v", s.name, err)
			}
			if b, err := c.readFrame(); err == nil {
				out[i] = string(b)
			}
		}
		if out[0] != out[1] {
			p.failf("packet %q\n  real   %q\n  zktest %q", raw, out[0], out[1])
		}
		p.connectClient(0, true, 30*time.Second)
	}
}

// exchangeRaw sends a request with any body, and returns the reply.
func (c *client) exchangeRaw(o int32, b []byte) ([]string, error) {
	r := wire.Request{Data: b}
	c.xid++
	var e wire.Encoder
	start := e.Begin()
	e.Int(c.xid)
	e.Int(o)
	e.B = append(e.B, b...)
	e.End(start)
	r.Xid, r.Op = c.xid, wire.Op(o)
	c.pending = append(c.pending, r)
	if _, err := c.nc.Write(e.B); err != nil {
		return nil, err
	}
	p, err := c.readFrame()
	if err != nil {
		c.pending = nil
		return []string{"closed"}, nil
	}
	return []string{c.renderPacket(p)}, nil
}

// runWatchOrder compares the order in which clients receive the events of several watches.
func runWatchOrder(p *serverPair) {
	p.compare(0, false, request(wire.Create, "/w"), request(wire.Create, "/w/a"))
	for k := range 3 {
		p.compare(k, false, request(wire.GetData, "/w/a", withWatch), request(wire.GetChildren, "/w/a", withWatch), request(wire.GetChildren2, "/w", withWatch),
			request(wire.Exists, "/w/a", withWatch), request(wire.Exists, "/w/b", withWatch), request(wire.GetData, "/w/none", withWatch))
	}
	p.compare(1, false, request(wire.Create, "/w/b"), request(wire.SetData, "/w/a"), request(wire.GetData, "/w/a", withWatch), request(wire.Delete, "/w/a"),
		request(wire.Create, "/w/a"), request(wire.Delete, "/w/b"))
	p.compare(2, false, request(wire.Multi, "", withOps(request(wire.SetData, "/w/a"), request(wire.Create, "/w/c"), request(wire.Delete, "/w/c"), request(wire.SetData, "/w"))))
	// Compare the events of a closed session, whose znodes the server deletes before the reply.
	p.compare(1, false, request(wire.Create, "/w/e", withFlags(1)))
	for k := range 3 {
		p.compare(k, false, request(wire.Exists, "/w/e", withWatch), request(wire.GetChildren, "/w", withWatch))
	}
	p.compare(1, false, request(wire.CloseSession, ""))
	p.connectClient(1, false, 30*time.Second)
}

func runRecursiveWatches(p *serverPair) {
	p.compare(0, false, request(wire.Create, "/r"), request(wire.Create, "/r/a"), request(wire.AddWatch, "/r", withFlags(1)), request(wire.AddWatch, "/", withFlags(1)))
	p.compare(1, false, request(wire.AddWatch, "/r", withFlags(0)), request(wire.AddWatch, "/r/a", withFlags(0)), request(wire.AddWatch, "/r/x", withFlags(1)))
	for range 2 {
		p.compare(2, false, request(wire.SetData, "/r"), request(wire.SetData, "/r/a"), request(wire.Create, "/r/x"), request(wire.Create, "/r/x/y"),
			request(wire.Delete, "/r/x/y"), request(wire.Delete, "/r/x"), request(wire.Delete, "/r/a"), request(wire.Create, "/r/a"))
	}
	// Replace persistent watches by one-shot watches at the same paths.
	p.compare(1, false, request(wire.GetData, "/r/a", withWatch), request(wire.GetChildren, "/r", withWatch))
	p.compare(0, false, request(wire.GetChildren, "/r", withWatch), request(wire.GetData, "/r", withWatch))
	for range 2 {
		p.compare(2, false, request(wire.SetData, "/r"), request(wire.SetData, "/r/a"), request(wire.Create, "/r/x"), request(wire.Delete, "/r/x"))
	}
	p.compare(0, false, request(wire.RemoveWatches, "/r", withFlags(3)), request(wire.RemoveWatches, "/", withFlags(2)))
	p.compare(1, false, request(wire.RemoveWatches, "/r/x", withFlags(1)))
	p.compare(2, false, request(wire.SetData, "/r"), request(wire.Create, "/r/x"), request(wire.SetData, "/r/x"), request(wire.Delete, "/r/x"))
	p.compare(0, false, request(wire.RemoveWatches, "/", withFlags(3)))
}

// runFilteredEvents verifies that ZooKeeper and zktest send the same watch events to a client that the ACL of the
// watched znode does not permit to read it.
func runFilteredEvents(p *serverPair) {
	p.compare(0, false, request(wire.Auth, "", func(r *wire.Request) { r.Scheme, r.Data = "digest", []byte("me:pw") }))
	p.compare(0, false, request(wire.Create, "/f", withACL(secret)), request(wire.GetData, "/f", withWatch), request(wire.GetChildren, "/f", withWatch))
	p.compare(1, false, request(wire.Exists, "/f", withWatch), request(wire.Exists, "/f/a", withWatch), request(wire.GetACL, "/f"), request(wire.GetChildren, "/f", withWatch),
		request(wire.GetAllChildrenNumber, "/f"), request(wire.SetData, "/f"), request(wire.Delete, "/f/a"), request(wire.Create, "/f/x"), request(wire.AddWatch, "/f", withFlags(1)))
	p.compare(0, false, request(wire.SetData, "/f"), request(wire.Create, "/f/a"), request(wire.Delete, "/f/a"), request(wire.Create, "/f/a", withACL(secret)), request(wire.Delete, "/f/a"))
	p.compare(1, false, request(wire.RemoveWatches, "/f", withFlags(3)))
	// Let other clients read the ACL, without the password in it.
	p.compare(0, false, request(wire.SetACL, "/f", withACL([]wire.ACL{{Perms: 31, Scheme: "auth"}, {Perms: 1, Scheme: "world", ID: "anyone"}})))
	p.compare(1, false, request(wire.GetACL, "/f"), request(wire.SetACL, "/f"), request(wire.SetData, "/f"), request(wire.Delete, "/f"), request(wire.Multi, "", withOps(request(wire.Check, "/f"))))
	p.compare(0, false, request(wire.SetACL, "/f", func(r *wire.Request) { r.Version = 7 }), request(wire.Delete, "/f"))
	p.compare(0, false, request(wire.SetACL, "/zookeeper/config"), request(wire.GetACL, "/zookeeper/config"), request(wire.SetData, "/zookeeper/config"))
}

func runSequences(p *serverPair) {
	p.compare(0, false, request(wire.Create, "/q"), request(wire.Create, "/q/a"), request(wire.Create, "/q/-", withFlags(2)), request(wire.Delete, "/q/a"),
		request(wire.Create2, "/q/", withFlags(2)), request(wire.Create2, "/q/-", withFlags(3)), request(wire.Create, "/q/x", withFlags(3)))
	p.compare(0, false, request(wire.Multi, "", withOps(request(wire.Create, "/q/-", withFlags(2)), request(wire.Create, "/q/-", withFlags(2)), request(wire.Create, "/q/-", withFlags(9)))))
	p.compare(0, false, request(wire.Multi, "", withOps(request(wire.Create, "/q/-", withFlags(2)), request(wire.Create, "/q/-", withFlags(3)))), request(wire.GetChildren2, "/q"))
	p.compare(0, false, request(wire.Create, "/q/x0000000003", withFlags(0)), request(wire.Create, "/q/-0000000003/z", withFlags(2)))
}

// runMultis compares multi requests whose operations depend on each other, and multi requests that
// fail.
func runMultis(p *serverPair) {
	p.compare(0, false, request(wire.Multi, "", withOps(request(wire.Create, "/m"), request(wire.Create, "/m/a"), request(wire.SetData, "/m/a"), request(wire.Check, "/m/a", func(r *wire.Request) { r.Version = 1 }),
		request(wire.Delete, "/m/a"), request(wire.Create2, "/m/a", withFlags(1)))))
	p.compare(1, false, request(wire.GetChildren2, "/m", withWatch), request(wire.Exists, "/m/b", withWatch), request(wire.GetData, "/m/a", withWatch))
	p.compare(0, false, request(wire.Multi, "", withOps(request(wire.Create, "/m/b"), request(wire.SetData, "/m/a"), request(wire.Delete, "/m/a"), request(wire.Create, "/m/b"))))
	p.compare(0, false, request(wire.GetChildren2, "/m"), request(wire.GetData, "/m/a"), request(wire.GetEphemerals, "/m"), request(wire.Multi, "", withOps()))
	p.compare(0, false, request(wire.Multi, "", withOps(request(wire.Delete, "/m"), request(wire.Create, "/m/c"))), request(wire.Multi, "", withOps(request(wire.Create, "/m/a/b"))))
	p.compare(2, false, request(wire.MultiRead, "", withOps(request(wire.GetData, "/m/a"), request(wire.GetChildren, "/m"), request(wire.GetData, "/m/none"))))
}

// runPipeline sends many requests without waiting for replies.
func runPipeline(p *serverPair) {
	p.compare(0, false, request(wire.Create, "/p"))
	var reqs []wire.Request
	for i := range 300 {
		switch i % 6 {
		case 0, 1:
			reqs = append(reqs, request(wire.Create, "/p/n-", withFlags(3)))
		case 2:
			reqs = append(reqs, request(wire.GetChildren2, "/p", withWatch))
		case 3:
			reqs = append(reqs, request(wire.SetData, "/p"))
		case 4:
			reqs = append(reqs, request(wire.GetData, "/p", withWatch))
		default:
			reqs = append(reqs, request(wire.Sync, "/p"))
		}
	}
	p.compare(1, false, reqs...)
}

// runHandshakes compares handshakes with a wrong password, a closed session, or a zxid that is greater
// than that of the server.
func runHandshakes(p *serverPair) {
	p.connectClient(2, false, time.Millisecond) // the shortest timeout is 2 ticks
	p.compare(2, false, request(wire.CloseSession, ""))
	p.connectClient(2, false, time.Hour)
	for _, x := range p.targets {
		x.clients[2].passwd = slices.Repeat([]byte{7}, 16)
	}
	p.connectClient(2, true, 30*time.Second)
	for _, x := range p.targets {
		x.clients[2].session = 4711
	}
	p.connectClient(2, true, 30*time.Second)
	p.connectClient(2, false, 30*time.Second)
	p.compare(2, false, request(wire.CloseSession, ""))
	p.connectClient(2, true, 30*time.Second)
	p.connectClient(2, false, 30*time.Second)
	var out [2]string
	for i, x := range p.targets {
		nc, err := net.Dial("tcp", x.addr)
		if err != nil {
			p.failf("connect to %s: %v", x.name, err)
		}
		c := &client{nc: nc, t: x}
		var e wire.Encoder
		start := e.Begin()
		e.Int(0)
		e.Long(1 << 60)
		e.Int(10000)
		e.Long(0)
		e.Buffer(make([]byte, 16))
		e.End(start)
		if _, err := nc.Write(e.B); err != nil {
			p.failf("write to %s: %v", x.name, err)
		}
		b := make([]byte, 4)
		n, err := nc.Read(b)
		out[i] = strings.TrimSpace(string(b[:n])) + errText(err)
		c.nc.Close()
	}
	if out[0] != out[1] {
		p.failf("answer to a handshake with a zxid that is too great: real %q, zktest %q", out[0], out[1])
	}
}

func errText(err error) string {
	if err != nil {
		return "closed"
	}
	return ""
}

// runMovedSession compares the replies on the older connection of a session that another connection has
// resumed.
func runMovedSession(p *serverPair) {
	var old [2]net.Conn
	for i, x := range p.targets {
		old[i] = x.clients[1].nc
		x.clients[1].nc = nil
	}
	p.connectClient(1, true, 30*time.Second)
	p.compare(1, false, request(wire.Create, "/moved", withFlags(1)))
	for i, nc := range old {
		nc.SetReadDeadline(time.Now().Add(replyLimit))
		if _, err := nc.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
			p.failf("%s does not close the older connection: %v", p.targets[i].name, err)
		}
		nc.Close()
	}
}

// runExpiry compares the event that another client receives when a session expires, and its time.
func runExpiry(p *serverPair) {
	const timeout = 3 * time.Second // the timeout is long enough for the requests on a busy machine
	p.connectClient(2, false, timeout)
	start := time.Now()
	p.compare(2, false, request(wire.Create, "/silent", withFlags(1)), request(wire.Create, "/silent2", withFlags(1)))
	p.compare(1, false, request(wire.Exists, "/silent", withWatch))
	lastRequest := time.Now()
	for i, x := range p.targets {
		b, err := x.clients[1].readFrame()
		if err != nil {
			p.failf("read the event from %s: %v", x.name, err)
		}
		if got := x.clients[1].renderPacket(b); !strings.Contains(got, `event type=2 state=3 "/silent"`) {
			p.failf("%s sends %s", x.name, got)
		}
		// Accept a little more than the timeout: the server may round it up by a tick, and this test
		// may run late.
		if time.Since(start) < timeout || time.Since(lastRequest) > timeout+5*time.Second {
			p.failf("%s expires a session of %v after %v", p.targets[i].name, timeout, time.Since(lastRequest))
		}
	}
	// Wait until the servers have closed the connections of the session, which they do after they
	// have sent the event: they answer the next request of another client later.
	for _, x := range p.targets {
		if _, err := x.clients[0].exchange(request(wire.Sync, "/")); err != nil {
			p.failf("sync with %s: %v", x.name, err)
		}
	}
	p.connectClient(2, true, 30*time.Second) // both servers reject the expired session
	p.connectClient(2, false, 30*time.Second)
	p.compare(1, false, request(wire.Exists, "/silent2"))
}

// runContainerAndTTLSweep compares the events when a sweep deletes containers and TTL nodes.
func runContainerAndTTLSweep(p *serverPair) {
	p.compare(0, false, request(wire.CreateContainer, "/box", withFlags(4)), request(wire.CreateContainer, "/unused", withFlags(4)), request(wire.Create, "/box/a"),
		request(wire.CreateTTL, "/young", withFlags(5), withTTL(3600000)))
	// Do not compare zxids until the sweep is over, because it may happen at any time from here on.
	exchangeBoth := func(k int, reqs ...wire.Request) {
		for _, x := range p.targets {
			if _, err := x.clients[k].exchange(reqs...); err != nil {
				p.failf("exchange with %s: %v", x.name, err)
			}
		}
	}
	expectDeleted := func(path string) {
		for _, x := range p.targets {
			b, err := x.clients[1].readFrame()
			if err != nil {
				p.failf("read the event from %s: %v", x.name, err)
			}
			if got := x.clients[1].renderPacket(b); !strings.Contains(got, fmt.Sprintf("event type=2 state=3 %q", path)) {
				p.failf("%s sends %s instead of the deletion of %s", x.name, got, path)
			}
		}
	}
	exchangeBoth(1, request(wire.CreateTTL, "/old", withFlags(5), withTTL(500)), request(wire.Exists, "/old", withWatch))
	expectDeleted("/old")
	exchangeBoth(1, request(wire.Exists, "/box", withWatch))
	exchangeBoth(0, request(wire.Delete, "/box/a"))
	expectDeleted("/box")
	p.compare(1, false, request(wire.Exists, "/box"), request(wire.Exists, "/old"), request(wire.GetData, "/young"), request(wire.GetData, "/unused"))
}

// runFourLetters compares the parts of the answers to four-letter words that are the same in each run.
func runFourLetters(p *serverPair) {
	p.compare(0, false, request(wire.GetData, "/", withWatch))
	for _, w := range []string{"ruok", "isro", "srvr", "wchs", "crst", "srst", "gtmk"} {
		var out [2]string
		for i, x := range p.targets {
			// Omit the number of connections with watches: the real server also counts connections
			// whose watches have all fired.
			out[i] = regexp.MustCompile(`(?m)^(Zookeeper version|Latency|Received|Sent|Connections|Zxid|\d+ connections).*\n`).
				ReplaceAllString(sendFourLetter(x.addr, w), "\n")
		}
		if out[0] != out[1] {
			p.failf("%s\n  real   %q\n  zktest %q", w, out[0], out[1])
		}
	}
}
