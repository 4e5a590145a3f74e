package zktest

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// Fate indicates how far a request was processed.
type Fate uint8

const (
	// Served means that the request was processed and answered normally.
	Served Fate = iota
	// CutBefore means that the connection was closed before the request was applied.
	CutBefore
	// CutAfter means that the request was applied, but the connection was closed before
	// the answer.
	CutAfter
	// Failed means that a hook supplied the answer. If it was a Before hook, the request
	// was not applied.
	Failed
)

// String returns the name of the fate.
func (f Fate) String() string {
	return [...]string{"served", "cut before", "cut after", "failed by hook"}[f]
}

// Entry is one entry of the request log.
type Entry struct {
	// Time is when the server processed the request or sent the notification.
	Time time.Time
	// Server is the number of the server, counted from 0.
	Server int
	// Session is the session that sent the request or received the notification.
	Session int64
	// Op is the operation, [OpNotification] for a watch event.
	Op Op
	// Path is the path in the request. If a request has several, it is the first.
	Path string
	// Created is the path of the znode that a create has made. It differs from Path if
	// the znode is sequential.
	Created string
	// Ops is the number of operations of a multi.
	Ops int
	// Event is the type of a notification.
	Event zk.EventType
	// Xid is the number that the client has given to the request. It is 0 for actions of
	// the server itself.
	Xid int32
	// Zxid is the zxid of the transaction. For a read, it is the last zxid that the read
	// could observe.
	Zxid int64
	// Code is the result. For a failed multi, it is the code of the operation that
	// failed.
	Code Code
	// Fate indicates how far the request was processed.
	Fate Fate
}

// String returns the entry on one line, without the time.
func (e Entry) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "0x%x %v", e.Session, e.Op)
	if e.Path != "" {
		fmt.Fprintf(&b, " %s", e.Path)
	}
	if e.Ops > 0 {
		fmt.Fprintf(&b, " (%d ops)", e.Ops)
	}
	if e.Op == OpNotification {
		fmt.Fprintf(&b, " %v", e.Event)
	}
	fmt.Fprintf(&b, " zxid=0x%x %s", e.Zxid, e.Code.String())
	if e.Fate != Served {
		fmt.Fprintf(&b, " [%v]", e.Fate)
	}
	return b.String()
}

// Log is a copy of the request log, oldest entry first.
type Log []Entry

// Filter returns the entries for which keep returns true.
func (l Log) Filter(keep func(Entry) bool) Log {
	var out Log
	for _, e := range l {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

// Session returns the entries of one session.
func (l Log) Session(id int64) Log { return l.Filter(func(e Entry) bool { return e.Session == id }) }

// Requests returns the requests of clients, that is, the round trips. It omits pings,
// handshakes, notifications and actions of the server itself.
func (l Log) Requests() Log {
	return l.Filter(func(e Entry) bool {
		return e.Op != OpPing && e.Op != OpConnect && e.Op != OpNotification && e.Xid != 0
	})
}

// Count returns the number of entries whose operation is one of ops, or of all entries if
// ops is empty.
func (l Log) Count(ops ...Op) int {
	if len(ops) == 0 {
		return len(l)
	}
	n := 0
	for _, e := range l {
		for _, op := range ops {
			if e.Op == op {
				n++
				break
			}
		}
	}
	return n
}

// Woken returns the sessions that received an event for path, in order.
func (l Log) Woken(path string) []int64 {
	var out []int64
	for _, e := range l {
		if e.Op == OpNotification && e.Path == path {
			out = append(out, e.Session)
		}
	}
	return out
}

// String returns the log as text, with one entry per line.
func (l Log) String() string {
	var b strings.Builder
	for _, e := range l {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// requestLog contains the newest entries, at most as many as WithLogLimit permits.
type requestLog struct {
	limit   int
	entries []Entry
	next    int // the index of the oldest entry, which the next one replaces, once the limit is reached
}

func (l *requestLog) add(e Entry) {
	switch {
	case l.limit <= 0:
	case len(l.entries) < l.limit:
		l.entries = append(l.entries, e)
	default:
		l.entries[l.next] = e
		l.next = (l.next + 1) % l.limit
	}
}

func (l *requestLog) snapshot() Log {
	out := make(Log, 0, len(l.entries))
	out = append(out, l.entries[l.next:]...)
	return append(out, l.entries[:l.next]...)
}

func (l *requestLog) reset() { l.entries, l.next = nil, 0 }

// addLogEntry appends x to the log. The caller holds e.mu.
func (e *ensemble) addLogEntry(x Entry) {
	if e.log.limit > 0 {
		x.Time = e.nowLocked()
		e.log.add(x)
	}
}
