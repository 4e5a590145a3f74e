package zkproxy

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// Kind is the kind of a message.
type Kind int

const (
	// Request is a message from a client.
	Request Kind = iota + 1
	// Reply is the server's answer to a request.
	Reply
	// Event is a notification of the server that a watch has fired.
	Event
)

func (k Kind) String() string {
	switch k {
	case Request:
		return "request"
	case Reply:
		return "reply"
	case Event:
		return "event"
	default:
		return fmt.Sprintf("Kind(%d)", int(k))
	}
}

// Record describes a message that the proxy has forwarded or that a rule has dropped.
type Record struct {
	Kind Kind
	// Time is when the proxy has forwarded the message, after any delay.
	Time time.Time
	// Conn is the number of the connection, counted from 1.
	Conn int
	// Session is the session of the connection. In a handshake request, it is the session that the client requests
	// to resume, or 0.
	Session int64
	// Op is the operation of a request, or of the request that a reply answers. It is 0 for an event.
	Op wire.Op
	// Xid is the number that the client has given to the request. Several requests can have the same number: for
	// example, the number of all pings is -2.
	Xid int32
	// Path is the first path in a request, in the request that a reply answers, or in an event. It may be empty.
	Path string
	// Zxid is the zxid in a reply or an event. In a handshake request, it is the last zxid that the client has
	// seen.
	Zxid int64
	// Err is the error code of a reply, 0 for success.
	Err int32
	// EventType is the type of an event: 1 created, 2 deleted, 3 data changed, 4 children
	// changed.
	EventType int32
	// Dropped is set if a rule has dropped the message.
	Dropped bool
}

// String returns the record as one line.
func (r Record) String() string {
	text := fmt.Sprintf("%s conn %d session %#x %v", r.Time.Format("15:04:05.000"), r.Conn, uint64(r.Session), r.Kind)
	if r.Kind == Event {
		text += fmt.Sprintf(" type %d", r.EventType)
	} else {
		text += fmt.Sprintf(" %v xid %d", r.Op, r.Xid)
	}
	text += fmt.Sprintf(" path %q zxid %#x err %d", r.Path, uint64(r.Zxid), r.Err)
	if r.Dropped {
		text += " dropped"
	}
	return text
}

// Log returns the messages so far, in the order in which the proxy has received them. The proxy records a message
// before it forwards the message.
func (p *Proxy) Log() []Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.records)
}

// ResetLog empties the log.
func (p *Proxy) ResetLog() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = nil
}

// Count returns the number of requests in the log whose operation is op, including requests that a rule has
// dropped. With OpAny, Count counts all requests except handshakes and pings.
func (p *Proxy) Count(op wire.Op) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := 0
	for _, r := range p.records {
		if r.Kind == Request && (Rule{Op: op}).matches(r.Op, r.Path) {
			count++
		}
	}
	return count
}

func (p *Proxy) addRecord(conn int, kind Kind, m message, dropped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = append(p.records, Record{
		Kind: kind, Time: time.Now(), Conn: conn, Session: m.session,
		Op: m.op, Xid: m.xid, Path: m.path, Zxid: m.zxid, Err: m.err,
		EventType: m.eventType, Dropped: dropped,
	})
}
