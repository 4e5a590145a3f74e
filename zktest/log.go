package zktest

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// Op is an operation of the protocol. Its String is the name the field uses.
type Op = wire.Op

// The operations that a request log shows and that hooks match. [OpConnect] is
// the handshake of a connection, [OpNotification] a watch event that was sent,
// [OpAny] matches every request.
const (
	OpAny                  = Op(0)
	OpNotification         = wire.Notification
	OpCreate               = wire.Create
	OpDelete               = wire.Delete
	OpExists               = wire.Exists
	OpGetData              = wire.GetData
	OpSetData              = wire.SetData
	OpGetACL               = wire.GetACL
	OpSetACL               = wire.SetACL
	OpGetChildren          = wire.GetChildren
	OpSync                 = wire.Sync
	OpPing                 = wire.Ping
	OpGetChildren2         = wire.GetChildren2
	OpCheck                = wire.Check
	OpMulti                = wire.Multi
	OpCreate2              = wire.Create2
	OpReconfig             = wire.Reconfig
	OpCheckWatches         = wire.CheckWatches
	OpRemoveWatches        = wire.RemoveWatches
	OpCreateContainer      = wire.CreateContainer
	OpDeleteContainer      = wire.DeleteContainer
	OpCreateTTL            = wire.CreateTTL
	OpMultiRead            = wire.MultiRead
	OpAuth                 = wire.Auth
	OpSetWatches           = wire.SetWatches
	OpGetEphemerals        = wire.GetEphemerals
	OpGetAllChildrenNumber = wire.GetAllChildrenNumber
	OpSetWatches2          = wire.SetWatches2
	OpAddWatch             = wire.AddWatch
	OpWhoAmI               = wire.WhoAmI
	OpCloseSession         = wire.CloseSession
	OpConnect              = wire.Connect
)

// Fate says how far a request came.
type Fate uint8

const (
	// Served: applied, and answered as the server saw fit.
	Served Fate = iota
	// CutBefore: the connection was closed before the request was applied.
	CutBefore
	// CutAfter: applied, but the connection was closed before the answer.
	CutAfter
	// Failed: a hook gave the answer. A Before hook's request was not applied.
	Failed
)

// String is the name of the fate.
func (f Fate) String() string {
	return [...]string{"served", "cut before", "cut after", "failed by hook"}[f]
}

// Entry is one line of the request log.
type Entry struct {
	Time    time.Time    // when the server dealt with it
	Server  int          // number of the server, from 0
	Session int64        // who asked, or who was told
	Op      Op           // or OpNotification
	Path    string       // as requested; the first one if the request has several
	Created string       // the path that a create made, which differs if it is sequential
	Ops     int          // how many operations a multi has
	Event   zk.EventType // of a notification
	Xid     int32        // the client's number for the request; 0 for what the server did itself
	Zxid    int64        // of the transaction; of a read, the last one it could see
	Code    Code         // the result; of a failed multi that of the operation that failed
	Fate    Fate
}

// String is the entry on one line, without the time.
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

// Filter returns the entries that keep holds for.
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

// Requests returns what clients asked for, round trips in other words: without
// pings, handshakes, notifications and what the server did itself.
func (l Log) Requests() Log {
	return l.Filter(func(e Entry) bool {
		return e.Op != OpPing && e.Op != OpConnect && e.Op != OpNotification && e.Xid != 0
	})
}

// Count is the number of entries of one of the given operations; of all entries
// if there is none given.
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

// Woken lists the sessions that were told of an event at path, in order.
func (l Log) Woken(path string) []int64 {
	var out []int64
	for _, e := range l {
		if e.Op == OpNotification && e.Path == path {
			out = append(out, e.Session)
		}
	}
	return out
}

// String is the log as text, an entry a line.
func (l Log) String() string {
	var b strings.Builder
	for _, e := range l {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// requestLog keeps the newest entries. It grows with use up to its limit.
type requestLog struct {
	limit   int
	entries []Entry
	next    int // where the next one goes when the limit is reached
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

// record appends to the log; the caller holds e.mu.
func (e *ensemble) record(x Entry) {
	if e.log.limit > 0 {
		x.Time = e.nowLocked()
		e.log.add(x)
	}
}
