package zkproxy

// The log of what passed.

import (
	"fmt"
	"slices"
	"time"
)

// Kind is what a [Record] is about.
type Kind int

const (
	// Request is a message from a client.
	Request Kind = iota + 1
	// Reply is the server's answer to a request.
	Reply
	// Event is a notification from the server: a watch has fired.
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

// Record is one message that passed, or was kept from passing by a rule.
type Record struct {
	Kind Kind
	// Time is when the message was passed on, after any delay.
	Time time.Time
	// Conn is the number of the connection, counted from 1.
	Conn int
	// Session is the session of the connection; for a handshake request the
	// one that the client asks to resume, or 0.
	Session int64
	// Op is the operation code; that of its request for a reply, 0 for an
	// event.
	Op int32
	// Xid is the number that the client gave the request. It repeats: pings
	// for example all have -2.
	Xid int32
	// Path is the first path in the request, that of its request for a reply,
	// and the changed node for an event. It may be empty.
	Path string
	// Zxid is the server's last transaction in a reply or event; in a
	// handshake request the last one that the client has seen.
	Zxid int64
	// Err is ZooKeeper's error code of a reply, 0 for success.
	Err int32
	// EventType is ZooKeeper's type of an event: 1 created, 2 deleted, 3 data
	// changed, 4 children changed.
	EventType int32
	// Dropped says that a rule kept the message from passing.
	Dropped bool
}

// String gives a line for the output of a failing test.
func (r Record) String() string {
	text := fmt.Sprintf("%s conn %d session %#x %v", r.Time.Format("15:04:05.000"), r.Conn, uint64(r.Session), r.Kind)
	if r.Kind == Event {
		text += fmt.Sprintf(" type %d", r.EventType)
	} else {
		text += fmt.Sprintf(" op %d xid %d", r.Op, r.Xid)
	}
	text += fmt.Sprintf(" path %q zxid %#x err %d", r.Path, uint64(r.Zxid), r.Err)
	if r.Dropped {
		text += " dropped"
	}
	return text
}

// Log gives all that has passed so far, in order. A message is in the log
// before its receiver can see it.
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

// Count gives how many requests with an operation code are in the log, those
// included that a rule kept from the server. With OpAny it counts all but
// handshakes and pings: the round trips that somebody asked for.
func (p *Proxy) Count(op int32) int {
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

func (p *Proxy) record(conn int, kind Kind, m message, dropped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = append(p.records, Record{
		Kind: kind, Time: time.Now(), Conn: conn, Session: m.session,
		Op: m.op, Xid: m.xid, Path: m.path, Zxid: m.zxid, Err: m.err,
		EventType: m.eventType, Dropped: dropped,
	})
}
