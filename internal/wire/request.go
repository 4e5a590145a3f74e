package wire

// ACL is one entry of an access control list.
type ACL struct {
	Perms      int32
	Scheme, ID string
}

// Header is the header of each request except the handshake.
type Header struct {
	Xid int32
	Op  Op
}

// ReadHeader reads a request header.
func (d *Decoder) ReadHeader() Header { return Header{Xid: d.Int(), Op: Op(d.Int())} }

// Header appends a request header.
func (e *Encoder) Header(h Header) {
	e.Int(h.Xid)
	e.Int(int32(h.Op))
}

// ConnectRequest is the handshake with which a client requests a session.
type ConnectRequest struct {
	Protocol     int32
	LastZxidSeen int64
	Timeout      int32 // the session timeout in milliseconds
	Session      int64
	Password     []byte
	HasReadOnly  bool // the request contains the field ReadOnly, and the client expects this field in the reply
	ReadOnly     bool
}

// ReadConnectRequest reads a handshake. Clients older than ZooKeeper 3.4 do not send the read-only
// flag.
func (d *Decoder) ReadConnectRequest() ConnectRequest {
	r := ConnectRequest{
		Protocol: d.Int(), LastZxidSeen: d.Long(), Timeout: d.Int(), Session: d.Long(), Password: d.Buffer(),
	}
	if d.err == nil && len(d.b) > 0 {
		r.HasReadOnly, r.ReadOnly = true, d.Bool()
	}
	return r
}

// ConnectRequest appends a handshake.
func (e *Encoder) ConnectRequest(r *ConnectRequest) {
	e.Int(r.Protocol)
	e.Long(r.LastZxidSeen)
	e.Int(r.Timeout)
	e.Long(r.Session)
	e.Buffer(r.Password)
	if r.HasReadOnly {
		e.Bool(r.ReadOnly)
	}
}

// Request is the body of a request. Only the fields that the operation uses are set.
type Request struct {
	Header
	Path       string
	Data       []byte
	ACL        []ACL
	Flags      int32 // the mode of create or addWatch, or the type of removeWatches or checkWatches
	TTL        int64 // the TTL in milliseconds; -1 if the znode has no TTL
	Version    int32
	Watch      bool
	Scheme     string
	Zxid       int64 // for setWatches: the last zxid that the client has seen
	DataW      []string
	ExistW     []string
	ChildW     []string
	Persistent []string
	Recursive  []string
	Ops        []Request
}

// ReadRequest reads the body of the request whose header is h. If the operation is unknown or its requests contain
// no body, ReadRequest reads nothing.
func (d *Decoder) ReadRequest(h Header) (Request, error) {
	r := Request{Header: h, TTL: -1}
	switch h.Op {
	case Create, Create2, CreateContainer, CreateTTL, Delete, SetData, Check:
		d.readOp(&r)
	case Exists, GetData, GetChildren, GetChildren2:
		r.Path, r.Watch = d.Text(), d.Bool()
	case GetACL, Sync, GetAllChildrenNumber:
		r.Path = d.Text()
	case GetEphemerals:
		r.Path = d.String()
	case SetACL:
		r.Path, r.ACL, r.Version = d.Text(), d.readACLs(), d.Int()
	case Multi, MultiRead:
		d.readMulti(&r)
	case Auth:
		_, r.Scheme, r.Data = d.Int(), d.String(), d.Buffer()
	case SASL:
		r.Data = d.Buffer()
	case SetWatches, SetWatches2:
		r.Zxid, r.DataW, r.ExistW, r.ChildW = d.Long(), d.Strings(), d.Strings(), d.Strings()
		if h.Op == SetWatches2 {
			r.Persistent, r.Recursive = d.Strings(), d.Strings()
		}
	case AddWatch, RemoveWatches, CheckWatches:
		r.Path, r.Flags = d.Text(), d.Int()
	case Reconfig:
		_, _, _, r.Zxid = d.Buffer(), d.Buffer(), d.Buffer(), d.Long()
	}
	return r, d.err
}

// readOp reads the body of an operation that can be part of a multi.
func (d *Decoder) readOp(r *Request) {
	switch r.Op {
	case Create, Create2, CreateContainer, CreateTTL:
		r.Path, r.Data, r.ACL, r.Flags = d.Text(), d.Buffer(), d.readACLs(), d.Int()
		if r.Op == CreateTTL {
			r.TTL = d.Long()
		}
	case Delete, Check:
		r.Path, r.Version = d.Text(), d.Int()
	case SetData:
		r.Path, r.Data, r.Version = d.Text(), d.Buffer(), d.Int()
	}
}

func (d *Decoder) readMulti(r *Request) {
	for {
		h := Header{Op: Op(d.Int())}
		done, _ := d.Bool(), d.Int()
		if done || d.err != nil {
			return
		}
		sub := Request{Header: h, TTL: -1}
		switch {
		case r.Op == Multi && (h.Op == Create || h.Op == Create2 || h.Op == CreateContainer ||
			h.Op == CreateTTL || h.Op == Delete || h.Op == SetData || h.Op == Check):
			d.readOp(&sub)
		case r.Op == MultiRead && (h.Op == GetData || h.Op == GetChildren):
			sub.Path, sub.Watch = d.Text(), d.Bool()
		default:
			d.err = ErrMalformed
			return
		}
		r.Ops = append(r.Ops, sub)
	}
}

func (d *Decoder) readACLs() []ACL {
	n := d.Count(12)
	if n == 0 {
		return nil
	}
	out := make([]ACL, 0, n)
	for range n {
		out = append(out, ACL{Perms: d.Int(), Scheme: d.String(), ID: d.String()})
	}
	return out
}

// ACLs appends a vector of ACL entries.
func (e *Encoder) ACLs(v []ACL) {
	e.Int(int32(len(v)))
	for _, a := range v {
		e.Int(a.Perms)
		e.String(a.Scheme)
		e.String(a.ID)
	}
}
