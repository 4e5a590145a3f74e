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

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// target is one of the two servers that a test compares. It renders replies as text that must be the
// same for both servers.
type target struct {
	name     string
	addr     string
	clients  []*client
	sessions map[int64]string // names for the session IDs; equal sessions of the two servers have the same name
	zxid0    int64            // the zxid to which the zxids of replies are relative
	opened   int
}

// client is a raw connection, without a client library that could hide differences.
type client struct {
	t       *target
	label   string
	nc      net.Conn
	br      *bufio.Reader
	session int64
	passwd  []byte
	xid     int32
	zxid    int64 // the last zxid of a reply
	pending []wire.Request
}

const replyLimit = 20 * time.Second

// connect connects c, with its session if it has one. It returns the rendered reply.
func (t *target) connect(c *client, timeout time.Duration) (string, error) {
	nc, err := net.DialTimeout("tcp", t.addr, replyLimit)
	if err != nil {
		return "", err
	}
	c.t, c.nc, c.br = t, nc, bufio.NewReader(nc)
	var e wire.Encoder
	start := e.Begin()
	r := wire.ConnectRequest{
		Timeout: int32(timeout.Milliseconds()), Session: c.session, Password: c.passwd, HasReadOnly: true,
	}
	if r.Password == nil {
		r.Password = make([]byte, 16)
	}
	e.ConnectRequest(&r)
	e.End(start)
	if _, err := nc.Write(e.B); err != nil {
		return "", err
	}
	b, err := c.readFrame()
	if err != nil {
		return "no reply", nil
	}
	d := wire.NewDecoder(b)
	reply := d.ReadConnectReply()
	if reply.Session == 0 {
		return fmt.Sprintf("refused, timeout %d", reply.Timeout), nil
	}
	isNew := reply.Session != c.session
	c.session, c.passwd = reply.Session, reply.Password
	if isNew {
		t.opened++
		t.sessions[c.session] = fmt.Sprintf("session%d", t.opened)
	}
	return fmt.Sprintf("%s new=%v timeout %d readOnly=%v left %d", t.sessions[c.session], isNew, reply.Timeout, reply.ReadOnly, d.Len()), nil
}

func (c *client) readFrame() ([]byte, error) {
	c.nc.SetReadDeadline(time.Now().Add(replyLimit))
	var head [4]byte
	if _, err := io.ReadFull(c.br, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(c.br, b)
	return b, err
}

// appendRequest encodes a request, and adds it to the requests for whose replies exchange waits.
func (c *client) appendRequest(e *wire.Encoder, r wire.Request) {
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
	e.Header(r.Header)
	encodeBody(e, &r)
	e.End(start)
	c.pending = append(c.pending, r)
}

// encodeBody appends the part of a request that depends on its operation.
func encodeBody(e *wire.Encoder, r *wire.Request) {
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
			encodeBody(e, &r.Ops[i])
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
		e.B = append(e.B, r.Data...) // encode other operations, whose body the test has stored in Data
	}
}

// exchange sends requests together. It returns the packets until the last reply, each rendered as one
// line.
func (c *client) exchange(reqs ...wire.Request) ([]string, error) {
	var e wire.Encoder
	for _, r := range reqs {
		c.appendRequest(&e, r)
	}
	if _, err := c.nc.Write(e.B); err != nil {
		return nil, err
	}
	var lines []string
	for len(c.pending) > 0 {
		b, err := c.readFrame()
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || err != nil && strings.Contains(err.Error(), "reset") {
			c.pending = nil
			return append(lines, "closed"), nil
		}
		if err != nil {
			return lines, fmt.Errorf("%s: after %q waiting for %v: %w", c.label, lines, c.pending[0].Op, err)
		}
		lines = append(lines, c.renderPacket(b))
	}
	return lines, nil
}

// renderPacket renders a packet as text.
func (c *client) renderPacket(b []byte) string {
	d := wire.NewDecoder(b)
	h := d.ReadReplyHeader()
	if h.Xid == wire.EventXid {
		ev := d.ReadWatchEvent()
		return fmt.Sprintf("event type=%d state=%d %q zxid=%d", ev.Type, ev.State, ev.Path, h.Zxid)
	}
	r := c.pending[0]
	c.pending = c.pending[1:]
	if h.Zxid > 0 {
		c.zxid = h.Zxid
	}
	out := fmt.Sprintf("%v xid ok=%v zxid=%s code=%d", r.Op, h.Xid == r.Xid, c.t.relativeZxid(h.Zxid), h.Code)
	if h.Code == 0 {
		out += " " + c.t.renderBody(&r, &d)
	}
	if d.Err() != nil {
		return out + " MALFORMED"
	}
	return out + fmt.Sprintf(" left %d", d.Len())
}

// relativeZxid renders a zxid relative to zxid0.
func (t *target) relativeZxid(z int64) string {
	if z <= 0 {
		return fmt.Sprint(z)
	}
	return fmt.Sprintf("+%d", z-t.zxid0)
}

func (t *target) renderBody(r *wire.Request, d *wire.Decoder) string {
	switch r.Op {
	case wire.Create, wire.Sync:
		return d.String()
	case wire.Create2, wire.CreateContainer, wire.CreateTTL:
		return d.String() + t.renderStat(d)
	case wire.Exists, wire.SetData, wire.SetACL:
		return t.renderStat(d)
	case wire.GetData:
		return fmt.Sprintf("%#v%s", d.Buffer(), t.renderStat(d))
	case wire.GetChildren, wire.GetEphemerals:
		return renderSorted(d)
	case wire.GetChildren2:
		return renderSorted(d) + t.renderStat(d)
	case wire.GetACL:
		n := d.Int()
		var acls []string
		for range n {
			acls = append(acls, fmt.Sprintf("%d %s:%s", d.Int(), d.String(), d.String()))
		}
		slices.Sort(acls) // "auth" is replaced by a set of identities
		return strings.Join(acls, ",") + t.renderStat(d)
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
		return t.renderMulti(r, d)
	}
	return ""
}

func (t *target) renderMulti(r *wire.Request, d *wire.Decoder) string {
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
			b.WriteString(" " + t.renderBody(&wire.Request{Header: wire.Header{Op: wire.Op(op)}}, d))
		}
		b.WriteString("]")
	}
	return b.String()
}

func renderSorted(d *wire.Decoder) string {
	v := d.Strings()
	slices.Sort(v)
	return fmt.Sprintf("%q", v)
}

// renderStat renders a Stat without its times.
func (t *target) renderStat(d *wire.Decoder) string {
	czxid, mzxid := d.Long(), d.Long()
	ctime, mtime := d.Long(), d.Long()
	version, cversion, aversion := d.Int(), d.Int(), d.Int()
	owner := d.Long()
	length, children, pzxid := d.Int(), d.Int(), d.Long()
	ownerName := "-"
	if owner != 0 {
		ownerName = t.sessions[owner]
		if ownerName == "" {
			ownerName = "unknown owner"
		}
	}
	if ctime > mtime {
		ownerName += " ctime after mtime"
	}
	return fmt.Sprintf(" {c%s m%s p%s v%d cv%d av%d owner %s len %d kids %d}",
		t.relativeZxid(czxid), t.relativeZxid(mzxid), t.relativeZxid(pzxid), version, cversion, aversion, ownerName, length, children)
}
