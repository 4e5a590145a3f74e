package difftest

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

var (
	open   = []wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}
	secret = []wire.ACL{{Perms: 31, Scheme: "auth"}}
)

func op(o wire.Op, path string, more ...func(*wire.Request)) wire.Request {
	r := wire.Request{Path: path, Version: -1, TTL: -1, ACL: open}
	r.Op = o
	for _, f := range more {
		f(&r)
	}
	return r
}

func flags(n int32) func(*wire.Request)         { return func(r *wire.Request) { r.Flags = n } }
func ttl(ms int64) func(*wire.Request)          { return func(r *wire.Request) { r.TTL = ms } }
func body(b string) func(*wire.Request)         { return func(r *wire.Request) { r.Data = []byte(b) } }
func watch(r *wire.Request)                     { r.Watch = true }
func acl(l []wire.ACL) func(*wire.Request)      { return func(r *wire.Request) { r.ACL = l } }
func ops(o ...wire.Request) func(*wire.Request) { return func(r *wire.Request) { r.Ops = o } }

// TestScripts goes through what random requests hit too seldom or must not hit.
// The scripts share one pair of servers, each has a part of the tree of its own.
func TestScripts(t *testing.T) {
	p := newPair(t, 300*time.Millisecond)
	for k := range 3 {
		p.open(k, false, 30*time.Second)
	}
	for _, s := range []struct {
		name string
		run  func(*pair)
	}{
		{"oddities", oddities},
		{"broken", broken},
		{"watch order", watchOrder},
		{"recursive", recursive},
		{"filtered events", filtered},
		{"sequence", sequence},
		{"multi", multis},
		{"pipeline", pipeline},
		{"handshake", handshakes},
		{"moved", moved},
		{"expiry", expiry},
		{"sweep", sweep},
		{"words", words},
	} {
		start := time.Now()
		s.run(p)
		t.Logf("%s: %v", s.name, time.Since(start).Round(time.Millisecond))
	}
}

// oddities are requests that make the server say something surprising.
func oddities(p *pair) {
	p.step(0, false, op(wire.Create, "/odd"))
	// In a multi the create mode decides what a create is, and a wrong one spoils the packet.
	for _, o := range []wire.Op{wire.Create, wire.Create2, wire.CreateContainer} {
		for _, f := range []int32{0, 2, 3, 5, 6, 7} {
			p.step(0, false, op(wire.Multi, "", ops(op(o, "/odd/m-", flags(f)))))
		}
	}
	p.step(0, false, op(wire.Multi, "", ops(op(wire.CreateTTL, "/odd/t", flags(0), ttl(1000)))))
	p.step(0, false, op(wire.Multi, "", ops(op(wire.CreateTTL, "/odd/t", flags(5), ttl(3600000)))))
	// A plain create with the mode of a container makes something persistent.
	p.step(0, false, op(wire.Create, "/odd/c", flags(4)), op(wire.Create2, "/odd/d", flags(4)), op(wire.Create, "/odd/e", flags(5)))
	p.step(0, false, op(wire.CreateContainer, "/odd/f", flags(1)), op(wire.CreateContainer, "/odd/f-", flags(3)))
	p.step(0, false, op(wire.GetChildren2, "/odd"), op(wire.GetEphemerals, "/odd"))
	p.step(0, false, op(wire.Reconfig, ""), op(wire.DeleteContainer, "", body("/odd/c")), op(wire.CreateSession, ""))
	p.step(0, false, op(wire.RemoveWatches, "/odd", flags(9)), op(wire.CheckWatches, "/odd", flags(4)),
		op(wire.CheckWatches, "/odd", flags(3)), op(wire.AddWatch, "/odd", flags(7)))
	p.step(0, false, op(wire.Exists, "/odd", watch), op(wire.CheckWatches, "/odd", flags(2)), op(wire.CheckWatches, "/odd", flags(1)),
		op(wire.RemoveWatches, "/odd", flags(1)), op(wire.RemoveWatches, "/odd", flags(3)), op(wire.RemoveWatches, "/odd", flags(3)))
	p.step(0, false, op(wire.WhoAmI, ""))
	p.step(0, false, op(wire.SASL, "", body("\x00\x00\x00\x05token")), op(wire.SASL, "", body("\x00\x00\x00\x00")), op(wire.Exists, "/odd"))
}

// broken are bodies that do not fit, answered with an error, and packets after
// which the server closes the connection.
func broken(p *pair) {
	for _, o := range []wire.Op{
		wire.Create, wire.Delete, wire.Exists, wire.GetData, wire.SetData, wire.GetACL, wire.SetACL, wire.GetChildren,
		wire.GetChildren2, wire.Sync, wire.Check, wire.Multi, wire.MultiRead, wire.SetWatches, wire.AddWatch, wire.Create2,
	} {
		for _, b := range []string{"", "\x00", "\x7f\xff\xff\xff", "\xff\xff\xff\xfb/a", "\x00\x00\x00\x02/"} {
			c := [2][]string{}
			p.log("broken %v %q", o, b)
			for i, x := range p.targets {
				lines, err := x.clients[0].raw(int32(o), []byte(b))
				if err != nil {
					p.fatal("%s: %v", x.name, err)
				}
				c[i] = lines
			}
			if !slices.Equal(c[0], c[1]) {
				p.fatal("%v with body %q\n  real   %s\n  zktest %s", o, b, c[0], c[1])
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
		p.log("closing %v %q", x.op, x.body)
		for i, s := range p.targets {
			lines, err := s.clients[0].raw(int32(x.op), []byte(x.body))
			if err != nil {
				p.fatal("%s: %v", s.name, err)
			}
			if lines[len(lines)-1] != "closed" {
				if b, err := s.clients[0].frame(); err == nil {
					p.fatal("%s: after %q another packet: %q", s.name, lines, b)
				}
			}
			out[i] = lines
		}
		if !slices.Equal(out[0], out[1]) {
			p.fatal("%v with body %q\n  real   %s\n  zktest %s", x.op, x.body, out[0], out[1])
		}
		p.open(0, true, 30*time.Second)
	}
	for _, raw := range []string{"\x00\x00\x00\x02ab", "\xff\xff\xff\xfeab", "\x00\x10\x00\x00ab"} {
		var out [2]string
		for i, s := range p.targets {
			c := s.clients[0]
			if _, err := c.nc.Write([]byte(raw)); err != nil {
				p.fatal("%s: %v", s.name, err)
			}
			if b, err := c.frame(); err == nil {
				out[i] = string(b)
			}
		}
		if out[0] != out[1] {
			p.fatal("packet %q\n  real   %q\n  zktest %q", raw, out[0], out[1])
		}
		p.open(0, true, 30*time.Second)
	}
}

// raw sends a request with a body that encode would not make.
func (c *client) raw(o int32, b []byte) ([]string, error) {
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
	p, err := c.frame()
	if err != nil {
		c.pending = nil
		return []string{"closed"}, nil
	}
	return []string{c.render(p)}, nil
}

// watchOrder: what a client is told comes in the order in which it happened.
func watchOrder(p *pair) {
	p.step(0, false, op(wire.Create, "/w"), op(wire.Create, "/w/a"))
	for k := range 3 {
		p.step(k, false, op(wire.GetData, "/w/a", watch), op(wire.GetChildren, "/w/a", watch), op(wire.GetChildren2, "/w", watch),
			op(wire.Exists, "/w/a", watch), op(wire.Exists, "/w/b", watch), op(wire.GetData, "/w/none", watch))
	}
	p.step(1, false, op(wire.Create, "/w/b"), op(wire.SetData, "/w/a"), op(wire.GetData, "/w/a", watch), op(wire.Delete, "/w/a"),
		op(wire.Create, "/w/a"), op(wire.Delete, "/w/b"))
	p.step(2, false, op(wire.Multi, "", ops(op(wire.SetData, "/w/a"), op(wire.Create, "/w/c"), op(wire.Delete, "/w/c"), op(wire.SetData, "/w"))))
	// The end of a session deletes its nodes before it is answered.
	p.step(1, false, op(wire.Create, "/w/e", flags(1)))
	for k := range 3 {
		p.step(k, false, op(wire.Exists, "/w/e", watch), op(wire.GetChildren, "/w", watch))
	}
	p.step(1, false, op(wire.CloseSession, ""))
	p.open(1, false, 30*time.Second)
}

func recursive(p *pair) {
	p.step(0, false, op(wire.Create, "/r"), op(wire.Create, "/r/a"), op(wire.AddWatch, "/r", flags(1)), op(wire.AddWatch, "/", flags(1)))
	p.step(1, false, op(wire.AddWatch, "/r", flags(0)), op(wire.AddWatch, "/r/a", flags(0)), op(wire.AddWatch, "/r/x", flags(1)))
	for range 2 {
		p.step(2, false, op(wire.SetData, "/r"), op(wire.SetData, "/r/a"), op(wire.Create, "/r/x"), op(wire.Create, "/r/x/y"),
			op(wire.Delete, "/r/x/y"), op(wire.Delete, "/r/x"), op(wire.Delete, "/r/a"), op(wire.Create, "/r/a"))
	}
	// A one-shot watch at the same path takes the place of the persistent one.
	p.step(1, false, op(wire.GetData, "/r/a", watch), op(wire.GetChildren, "/r", watch))
	p.step(0, false, op(wire.GetChildren, "/r", watch), op(wire.GetData, "/r", watch))
	for range 2 {
		p.step(2, false, op(wire.SetData, "/r"), op(wire.SetData, "/r/a"), op(wire.Create, "/r/x"), op(wire.Delete, "/r/x"))
	}
	p.step(0, false, op(wire.RemoveWatches, "/r", flags(3)), op(wire.RemoveWatches, "/", flags(2)))
	p.step(1, false, op(wire.RemoveWatches, "/r/x", flags(1)))
	p.step(2, false, op(wire.SetData, "/r"), op(wire.Create, "/r/x"), op(wire.SetData, "/r/x"), op(wire.Delete, "/r/x"))
	p.step(0, false, op(wire.RemoveWatches, "/", flags(3)))
}

// filtered: who may not read a node is not told of it.
func filtered(p *pair) {
	p.step(0, false, op(wire.Auth, "", func(r *wire.Request) { r.Scheme, r.Data = "digest", []byte("me:pw") }))
	p.step(0, false, op(wire.Create, "/f", acl(secret)), op(wire.GetData, "/f", watch), op(wire.GetChildren, "/f", watch))
	p.step(1, false, op(wire.Exists, "/f", watch), op(wire.Exists, "/f/a", watch), op(wire.GetACL, "/f"), op(wire.GetChildren, "/f", watch),
		op(wire.GetAllChildrenNumber, "/f"), op(wire.SetData, "/f"), op(wire.Delete, "/f/a"), op(wire.Create, "/f/x"), op(wire.AddWatch, "/f", flags(1)))
	p.step(0, false, op(wire.SetData, "/f"), op(wire.Create, "/f/a"), op(wire.Delete, "/f/a"), op(wire.Create, "/f/a", acl(secret)), op(wire.Delete, "/f/a"))
	p.step(1, false, op(wire.RemoveWatches, "/f", flags(3)))
	// Read for others, the rest for the owner: they see the list without the password.
	p.step(0, false, op(wire.SetACL, "/f", acl([]wire.ACL{{Perms: 31, Scheme: "auth"}, {Perms: 1, Scheme: "world", ID: "anyone"}})))
	p.step(1, false, op(wire.GetACL, "/f"), op(wire.SetACL, "/f"), op(wire.SetData, "/f"), op(wire.Delete, "/f"), op(wire.Multi, "", ops(op(wire.Check, "/f"))))
	p.step(0, false, op(wire.SetACL, "/f", func(r *wire.Request) { r.Version = 7 }), op(wire.Delete, "/f"))
	p.step(0, false, op(wire.SetACL, "/zookeeper/config"), op(wire.GetACL, "/zookeeper/config"), op(wire.SetData, "/zookeeper/config"))
}

func sequence(p *pair) {
	p.step(0, false, op(wire.Create, "/q"), op(wire.Create, "/q/a"), op(wire.Create, "/q/-", flags(2)), op(wire.Delete, "/q/a"),
		op(wire.Create2, "/q/", flags(2)), op(wire.Create2, "/q/-", flags(3)), op(wire.Create, "/q/x", flags(3)))
	p.step(0, false, op(wire.Multi, "", ops(op(wire.Create, "/q/-", flags(2)), op(wire.Create, "/q/-", flags(2)), op(wire.Create, "/q/-", flags(9)))))
	p.step(0, false, op(wire.Multi, "", ops(op(wire.Create, "/q/-", flags(2)), op(wire.Create, "/q/-", flags(3)))), op(wire.GetChildren2, "/q"))
	p.step(0, false, op(wire.Create, "/q/x0000000003", flags(0)), op(wire.Create, "/q/-0000000003/z", flags(2)))
}

// multis see the effects of their earlier parts, and leave nothing when they fail.
func multis(p *pair) {
	p.step(0, false, op(wire.Multi, "", ops(op(wire.Create, "/m"), op(wire.Create, "/m/a"), op(wire.SetData, "/m/a"), op(wire.Check, "/m/a", func(r *wire.Request) { r.Version = 1 }),
		op(wire.Delete, "/m/a"), op(wire.Create2, "/m/a", flags(1)))))
	p.step(1, false, op(wire.GetChildren2, "/m", watch), op(wire.Exists, "/m/b", watch), op(wire.GetData, "/m/a", watch))
	p.step(0, false, op(wire.Multi, "", ops(op(wire.Create, "/m/b"), op(wire.SetData, "/m/a"), op(wire.Delete, "/m/a"), op(wire.Create, "/m/b"))))
	p.step(0, false, op(wire.GetChildren2, "/m"), op(wire.GetData, "/m/a"), op(wire.GetEphemerals, "/m"), op(wire.Multi, "", ops()))
	p.step(0, false, op(wire.Multi, "", ops(op(wire.Delete, "/m"), op(wire.Create, "/m/c"))), op(wire.Multi, "", ops(op(wire.Create, "/m/a/b"))))
	p.step(2, false, op(wire.MultiRead, "", ops(op(wire.GetData, "/m/a"), op(wire.GetChildren, "/m"), op(wire.GetData, "/m/none"))))
}

// pipeline sends a lot without waiting for answers.
func pipeline(p *pair) {
	p.step(0, false, op(wire.Create, "/p"))
	var reqs []wire.Request
	for i := range 300 {
		switch i % 6 {
		case 0, 1:
			reqs = append(reqs, op(wire.Create, "/p/n-", flags(3)))
		case 2:
			reqs = append(reqs, op(wire.GetChildren2, "/p", watch))
		case 3:
			reqs = append(reqs, op(wire.SetData, "/p"))
		case 4:
			reqs = append(reqs, op(wire.GetData, "/p", watch))
		default:
			reqs = append(reqs, op(wire.Sync, "/p"))
		}
	}
	p.step(1, false, reqs...)
}

// handshakes with passwords that are wrong, sessions that are gone, and a zxid from the future.
func handshakes(p *pair) {
	p.open(2, false, time.Millisecond) // 2 ticks is the least
	p.step(2, false, op(wire.CloseSession, ""))
	p.open(2, false, time.Hour)
	for _, x := range p.targets {
		x.clients[2].passwd = slices.Repeat([]byte{7}, 16)
	}
	p.open(2, true, 30*time.Second)
	for _, x := range p.targets {
		x.clients[2].session = 4711
	}
	p.open(2, true, 30*time.Second)
	p.open(2, false, 30*time.Second)
	p.step(2, false, op(wire.CloseSession, ""))
	p.open(2, true, 30*time.Second)
	p.open(2, false, 30*time.Second)
	var out [2]string
	for i, x := range p.targets {
		nc, err := net.Dial("tcp", x.addr)
		if err != nil {
			p.fatal("%v", err)
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
			p.fatal("%v", err)
		}
		b := make([]byte, 4)
		n, err := nc.Read(b)
		out[i] = strings.TrimSpace(string(b[:n])) + errText(err)
		c.nc.Close()
	}
	if out[0] != out[1] {
		p.fatal("a zxid from the future: real %q, zktest %q", out[0], out[1])
	}
}

func errText(err error) string {
	if err != nil {
		return "closed"
	}
	return ""
}

// moved: a second connection takes the session over and the first one is closed.
func moved(p *pair) {
	var old [2]net.Conn
	for i, x := range p.targets {
		old[i] = x.clients[1].nc
		x.clients[1].nc = nil
	}
	p.open(1, true, 30*time.Second)
	p.step(1, false, op(wire.Create, "/moved", flags(1)))
	for i, nc := range old {
		nc.SetReadDeadline(time.Now().Add(patience))
		if _, err := nc.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
			p.fatal("%s keeps the older connection: %v", p.targets[i].name, err)
		}
		nc.Close()
	}
}

// expiry: a session whose client is silent ends, and others are told.
func expiry(p *pair) {
	const timeout = 3 * time.Second // in which a busy machine gets to the end of the steps
	p.open(2, false, timeout)
	heard := time.Now()
	p.step(2, false, op(wire.Create, "/silent", flags(1)), op(wire.Create, "/silent2", flags(1)))
	p.step(1, false, op(wire.Exists, "/silent", watch))
	silent := time.Now()
	for i, x := range p.targets {
		b, err := x.clients[1].frame()
		if err != nil {
			p.fatal("%s: %v", x.name, err)
		}
		if got := x.clients[1].render(b); !strings.Contains(got, `event type=2 state=3 "/silent"`) {
			p.fatal("%s says %s", x.name, got)
		}
		// One tick may be rounded up, and this test may be told late.
		if time.Since(heard) < timeout || time.Since(silent) > timeout+5*time.Second {
			p.fatal("%s ended a session of %v after %v", p.targets[i].name, timeout, time.Since(silent))
		}
	}
	// The event comes before the server is done with the connections of the session;
	// what is asked now comes after that.
	for _, x := range p.targets {
		if _, err := x.clients[0].do(op(wire.Sync, "/")); err != nil {
			p.fatal("%s: %v", x.name, err)
		}
	}
	p.open(2, true, 30*time.Second) // refused by both
	p.open(2, false, 30*time.Second)
	p.step(1, false, op(wire.Exists, "/silent2"))
}

// sweep: the server deletes containers that were used and TTL nodes that are old.
func sweep(p *pair) {
	p.step(0, false, op(wire.CreateContainer, "/box", flags(4)), op(wire.CreateContainer, "/unused", flags(4)), op(wire.Create, "/box/a"),
		op(wire.CreateTTL, "/young", flags(5), ttl(3600000)))
	// From here on a sweep may come at any moment, so the numbers of transactions
	// are compared again when it is over.
	both := func(k int, reqs ...wire.Request) {
		for _, x := range p.targets {
			if _, err := x.clients[k].do(reqs...); err != nil {
				p.fatal("%s: %v", x.name, err)
			}
		}
	}
	deleted := func(path string) {
		for _, x := range p.targets {
			b, err := x.clients[1].frame()
			if err != nil {
				p.fatal("%s: %v", x.name, err)
			}
			if got := x.clients[1].render(b); !strings.Contains(got, fmt.Sprintf("event type=2 state=3 %q", path)) {
				p.fatal("%s says %s instead of the end of %s", x.name, got, path)
			}
		}
	}
	both(1, op(wire.CreateTTL, "/old", flags(5), ttl(500)), op(wire.Exists, "/old", watch))
	deleted("/old")
	both(1, op(wire.Exists, "/box", watch))
	both(0, op(wire.Delete, "/box/a"))
	deleted("/box")
	p.step(1, false, op(wire.Exists, "/box"), op(wire.Exists, "/old"), op(wire.GetData, "/young"), op(wire.GetData, "/unused"))
}

// words compares the four-letter words as far as they say something comparable.
func words(p *pair) {
	p.step(0, false, op(wire.GetData, "/", watch))
	for _, w := range []string{"ruok", "isro", "srvr", "wchs", "crst", "srst", "gtmk"} {
		var out [2]string
		for i, x := range p.targets {
			// The real server also counts connections whose watches have all fired.
			out[i] = regexp.MustCompile(`(?m)^(Zookeeper version|Latency|Received|Sent|Connections|Zxid|\d+ connections).*\n`).
				ReplaceAllString(word(x.addr, w), "\n")
		}
		if out[0] != out[1] {
			p.fatal("%s\n  real   %q\n  zktest %q", w, out[0], out[1])
		}
	}
}
