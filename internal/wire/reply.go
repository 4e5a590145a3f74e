package wire

// ConnectReply is the reply to the handshake.
type ConnectReply struct {
	Protocol    int32
	Timeout     int32 // the session timeout in milliseconds
	Session     int64 // the session ID; 0 if the server does not know the session that the client wants to continue
	Password    []byte
	HasReadOnly bool // the reply contains the field ReadOnly
	ReadOnly    bool
}

// ReadConnectReply reads the reply to a handshake.
func (d *Decoder) ReadConnectReply() ConnectReply {
	r := ConnectReply{Protocol: d.Int(), Timeout: d.Int(), Session: d.Long(), Password: d.Buffer()}
	if d.err == nil && len(d.b) > 0 {
		r.HasReadOnly, r.ReadOnly = true, d.Bool()
	}
	return r
}

// ConnectReply appends the reply to a handshake.
func (e *Encoder) ConnectReply(r *ConnectReply) {
	e.Int(r.Protocol)
	e.Int(r.Timeout)
	e.Long(r.Session)
	e.Buffer(r.Password)
	if r.HasReadOnly {
		e.Bool(r.ReadOnly)
	}
}

// ReplyHeader is the header of each packet of a server except the reply to the handshake.
type ReplyHeader struct {
	Xid  int32 // the Xid of the request, or EventXid
	Zxid int64
	Code int32 // the error code; 0 for success
}

// EventXid is the Xid in the header of watch events.
const EventXid = -1

// ReadReplyHeader reads the 16 bytes with which each reply begins.
func (d *Decoder) ReadReplyHeader() ReplyHeader {
	return ReplyHeader{Xid: d.Int(), Zxid: d.Long(), Code: d.Int()}
}

// ReplyHeader appends the header of a reply.
func (e *Encoder) ReplyHeader(xid int32, zxid int64, code int32) {
	e.Int(xid)
	e.Long(zxid)
	e.Int(code)
}

// WatchEvent is the body of a watch event.
type WatchEvent struct {
	Type  int32 // the type of the event: 1 created, 2 deleted, 3 data changed, 4 children changed
	State int32
	Path  string
}

// ReadWatchEvent reads the body of a watch event.
func (d *Decoder) ReadWatchEvent() WatchEvent {
	return WatchEvent{Type: d.Int(), State: d.Int(), Path: d.String()}
}

// WatchEvent appends a watch event with its header.
func (e *Encoder) WatchEvent(ev WatchEvent) {
	e.ReplyHeader(EventXid, -1, 0)
	e.Int(ev.Type)
	e.Int(ev.State)
	e.String(ev.Path)
}
