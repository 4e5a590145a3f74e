package difftest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// target is one of the two servers, with what is needed to write its answers in
// a form that does not depend on it.
type target struct {
	name     string
	addr     string
	clients  []*client
	sessions map[int64]string // session id → a name common to both servers
	zxid0    int64            // zxid of the first session; answers count from there
	opened   int
}

// client is one raw connection: no client library that could hide something.
type client struct {
	t       *target
	label   string
	nc      net.Conn
	br      *bufio.Reader
	session int64
	passwd  []byte
	xid     int32
	zxid    int64 // last seen
	pending []wire.Request
}

const patience = 20 * time.Second

// open makes a connection: for a new session, or for the one that c had.
func (t *target) open(c *client, timeout time.Duration) (string, error) {
	nc, err := net.DialTimeout("tcp", t.addr, patience)
	if err != nil {
		return "", err
	}
	c.t, c.nc, c.br = t, nc, bufio.NewReader(nc)
	var e wire.Encoder
	start := e.Begin()
	e.Int(0)
	e.Long(0)
	e.Int(int32(timeout.Milliseconds()))
	e.Long(c.session)
	pw := c.passwd
	if pw == nil {
		pw = make([]byte, 16)
	}
	e.Buffer(pw)
	e.Bool(false)
	e.End(start)
	if _, err := nc.Write(e.B); err != nil {
		return "", err
	}
	b, err := c.frame()
	if err != nil {
		return "no answer", nil
	}
	d := wire.NewDecoder(b)
	d.Int()
	got, id := d.Int(), d.Long()
	pw = d.Buffer()
	if id == 0 {
		return fmt.Sprintf("refused, timeout %d", got), nil
	}
	fresh := id != c.session
	c.session, c.passwd = id, pw
	if fresh {
		t.opened++
		t.sessions[id] = fmt.Sprintf("session%d", t.opened)
	}
	return fmt.Sprintf("%s fresh=%v timeout %d readOnly=%v left %d", t.sessions[id], fresh, got, d.Bool(), d.Len()), nil
}

func (c *client) frame() ([]byte, error) {
	c.nc.SetReadDeadline(time.Now().Add(patience))
	var head [4]byte
	if _, err := io.ReadFull(c.br, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(c.br, b)
	return b, err
}

// queue encodes a request; flush sends all that are queued.
func (c *client) queue(e *wire.Encoder, r wire.Request) {
	c.xid++
	r.Xid = c.xid
	switch r.Op {
	case wire.Ping:
		r.Xid = -2
	case wire.Auth:
		r.Xid = -4
	}
	if r.Op == wire.SetWatches || r.Op == wire.SetWatches2 {
		r.Zxid += c.t.zxid0
	}
	start := e.Begin()
	e.Int(r.Xid)
	e.Int(int32(r.Op))
	encode(e, &r)
	e.End(start)
	c.pending = append(c.pending, r)
}

// encode writes the body of a request.
func encode(e *wire.Encoder, r *wire.Request) {
	switch r.Op {
	case wire.Create, wire.Create2, wire.CreateContainer, wire.CreateTTL:
		e.String(r.Path)
		e.Buffer(r.Data)
		e.ACLs(r.ACL)
		e.Int(r.Flags)
		if r.Op == wire.CreateTTL {
			e.Long(r.TTL)
		}
	case wire.Delete, wire.Check:
		e.String(r.Path)
		e.Int(r.Version)
	case wire.SetData:
		e.String(r.Path)
		e.Buffer(r.Data)
		e.Int(r.Version)
	case wire.SetACL:
		e.String(r.Path)
		e.ACLs(r.ACL)
		e.Int(r.Version)
	case wire.Exists, wire.GetData, wire.GetChildren, wire.GetChildren2:
		e.String(r.Path)
		e.Bool(r.Watch)
	case wire.GetACL, wire.Sync, wire.GetAllChildrenNumber, wire.GetEphemerals:
		e.String(r.Path)
	case wire.Multi, wire.MultiRead:
		for i := range r.Ops {
			e.Int(int32(r.Ops[i].Op))
			e.Bool(false)
			e.Int(-1)
			encode(e, &r.Ops[i])
		}
		e.Int(-1)
		e.Bool(true)
		e.Int(-1)
	case wire.Auth:
		e.Int(0)
		e.String(r.Scheme)
		e.Buffer(r.Data)
	case wire.SetWatches, wire.SetWatches2:
		e.Long(r.Zxid)
		e.Strings(r.DataW)
		e.Strings(r.ExistW)
		e.Strings(r.ChildW)
		if r.Op == wire.SetWatches2 {
			e.Strings(r.Persistent)
			e.Strings(r.Recursive)
		}
	case wire.AddWatch, wire.RemoveWatches, wire.CheckWatches:
		e.String(r.Path)
		e.Int(r.Flags)
	case wire.Reconfig:
		e.Buffer(nil)
		e.Buffer(nil)
		e.Buffer(nil)
		e.Long(-1)
	default:
		e.B = append(e.B, r.Data...) // a body given as it is
	}
}

// do sends requests in one go and returns what came back, a line a packet, up to
// the answer of the last one.
func (c *client) do(reqs ...wire.Request) ([]string, error) {
	var e wire.Encoder
	for _, r := range reqs {
		c.queue(&e, r)
	}
	if _, err := c.nc.Write(e.B); err != nil {
		return nil, err
	}
	var lines []string
	for len(c.pending) > 0 {
		b, err := c.frame()
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || err != nil && strings.Contains(err.Error(), "reset") {
			c.pending = nil
			return append(lines, "closed"), nil
		}
		if err != nil {
			return lines, fmt.Errorf("%s: after %q waiting for %v: %w", c.label, lines, c.pending[0].Op, err)
		}
		lines = append(lines, c.render(b))
	}
	return lines, nil
}

// render writes a packet as text.
func (c *client) render(b []byte) string {
	d := wire.NewDecoder(b)
	xid, zxid, code := d.Int(), d.Long(), d.Int()
	if xid == -1 {
		typ, state, path := d.Int(), d.Int(), d.String()
		return fmt.Sprintf("event type=%d state=%d %q zxid=%d", typ, state, path, zxid)
	}
	r := c.pending[0]
	c.pending = c.pending[1:]
	if zxid > 0 {
		c.zxid = zxid
	}
	out := fmt.Sprintf("%v xid ok=%v zxid=%s code=%d", r.Op, xid == r.Xid, c.t.rel(zxid), code)
	if code == 0 {
		out += " " + c.t.body(&r, &d)
	}
	if d.Err() != nil {
		return out + " MALFORMED"
	}
	return out + fmt.Sprintf(" left %d", d.Len())
}

// rel makes a zxid relative to the beginning.
func (t *target) rel(z int64) string {
	if z <= 0 {
		return fmt.Sprint(z)
	}
	return fmt.Sprintf("+%d", z-t.zxid0)
}

func (t *target) body(r *wire.Request, d *wire.Decoder) string {
	switch r.Op {
	case wire.Create, wire.Sync:
		return d.String()
	case wire.Create2, wire.CreateContainer, wire.CreateTTL:
		return d.String() + t.stat(d)
	case wire.Exists, wire.SetData, wire.SetACL:
		return t.stat(d)
	case wire.GetData:
		return fmt.Sprintf("%#v%s", d.Buffer(), t.stat(d))
	case wire.GetChildren, wire.GetEphemerals:
		return sorted(d)
	case wire.GetChildren2:
		return sorted(d) + t.stat(d)
	case wire.GetACL:
		n := d.Int()
		var acls []string
		for range n {
			acls = append(acls, fmt.Sprintf("%d %s:%s", d.Int(), d.String(), d.String()))
		}
		slices.Sort(acls) // "auth" expands to a set
		return strings.Join(acls, ",") + t.stat(d)
	case wire.GetAllChildrenNumber, wire.AddWatch:
		return fmt.Sprint(d.Int())
	case wire.WhoAmI:
		n := d.Int()
		var ids []string
		for range n {
			ids = append(ids, d.String()+":"+d.String())
		}
		slices.Sort(ids)
		return strings.Join(ids, ",")
	case wire.Multi, wire.MultiRead:
		return t.multi(r, d)
	}
	return ""
}

func (t *target) multi(r *wire.Request, d *wire.Decoder) string {
	var b strings.Builder
	for i := 0; d.Err() == nil; i++ {
		op, done, code := d.Int(), d.Bool(), d.Int()
		fmt.Fprintf(&b, "[%d %v %d", op, done, code)
		if done {
			b.WriteString("]")
			break
		}
		if op == -1 {
			fmt.Fprintf(&b, " %d", d.Int())
		} else {
			b.WriteString(" " + t.body(&wire.Request{Header: wire.Header{Op: wire.Op(op)}}, d))
		}
		b.WriteString("]")
	}
	return b.String()
}

func sorted(d *wire.Decoder) string {
	v := d.Strings()
	slices.Sort(v)
	return fmt.Sprintf("%q", v)
}

// stat leaves the times out, and writes zxids and owners in a common form.
func (t *target) stat(d *wire.Decoder) string {
	czxid, mzxid := d.Long(), d.Long()
	ctime, mtime := d.Long(), d.Long()
	version, cversion, aversion := d.Int(), d.Int(), d.Int()
	owner := d.Long()
	length, children, pzxid := d.Int(), d.Int(), d.Long()
	own := "-"
	if owner != 0 {
		own = t.sessions[owner]
		if own == "" {
			own = "unknown owner"
		}
	}
	if ctime > mtime {
		own += " ctime after mtime"
	}
	return fmt.Sprintf(" {c%s m%s p%s v%d cv%d av%d owner %s len %d kids %d}",
		t.rel(czxid), t.rel(mzxid), t.rel(pzxid), version, cversion, aversion, own, length, children)
}
