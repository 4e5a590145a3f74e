package connection

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"
)

// Kind is the kind of an Event.
type Kind int

const (
	// Dialing means that the client opens a network connection to Server.
	Dialing Kind = iota + 1
	// Failed means that Server has not granted a session, because of Err.
	Failed
	// Established means that Server has granted Timeout to Session, and that the handshake is complete.
	Established
	// Expired means that the servers do not know the session any more. Lost is set if the servers have lost their
	// data.
	Expired
	// Broken means that the network connection of the session is closed, because of Err.
	Broken
	// Closing means that the owner closes the connection. The client has not sent the packet yet that ends the
	// session.
	Closing
	// Closed means that the client library uses the connection no more, because of Err if that is not nil.
	Closed
)

// Event is something that has happened to a connection.
type Event struct {
	Kind    Kind
	Server  string
	Session int64
	Timeout time.Duration
	Lost    bool
	Err     error
}

// ErrHangs is the Err of an event Closed that the owner of the connection has not caused.
var ErrHangs = errors.New("the client library does not connect again, as go-zookeeper 1.0.4 if a write fails while credentials are sent again; open a new connection, with zkdial.Connect")

// Facts are what a record knows about its connection from the events.
type Facts struct {
	Session int64  // the current session, 0 if there is none
	Server  string // the server to which the client opens a connection, or which has granted the session
	Up      bool   // the network connection of the session exists
	Breaks  uint64 // the number of events Broken
	Closed  bool   // an event Closing or Closed has occurred
	Losses  int    // the number of sessions that ended because the servers had lost their data
	Losing  bool   // a session has ended because the servers had lost their data, and no new session has begun
	Failure error  // why there is no session, with the address of the server, or nil if that is not known
	// Idle is the time since which the client library neither has a session nor tries to obtain one, or zero.
	// Unless the library hangs, it tries again within two seconds.
	Idle time.Time
}

// Record holds the facts about one connection. The dialer of package zkdial pushes the events that it causes; for
// other connections Poll infers the events. The methods of a Record may be called from any goroutine.
type Record struct {
	mu       sync.Mutex
	dialed   bool // the dialer of package zkdial pushes the events
	facts    Facts
	read     time.Duration // the granted timeout, if the dialer has read it from the handshake
	observer func(Event)
}

var records = NewMap(func(*zk.Conn) *Record { return &Record{} })

// RecordOf returns the record of a connection.
func RecordOf(conn *zk.Conn) *Record { return records.Of(conn) }

// SetDialed records that the dialer of package zkdial pushes the events, so that Poll does nothing.
func (r *Record) SetDialed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dialed = true
}

// Observe sets the function that Push calls with each event. The function must not block.
func (r *Record) Observe(f func(Event)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observer = f
}

// Push records an event, and then calls the function that Observe has set.
func (r *Record) Push(e Event) {
	r.mu.Lock()
	r.apply(e)
	observer := r.observer
	r.mu.Unlock()
	if observer != nil {
		observer(e)
	}
}

// apply updates the facts by an event. The caller holds mu.
func (r *Record) apply(e Event) {
	f := &r.facts
	if e.Timeout > 0 {
		r.read = e.Timeout
	}
	switch e.Kind {
	case Dialing:
		f.Server, f.Idle = e.Server, time.Time{}
	case Failed:
		f.Failure, f.Idle = fmt.Errorf("%s: %w", e.Server, e.Err), time.Now()
	case Established:
		f.Session, f.Server, f.Up, f.Idle, f.Failure, f.Losing = e.Session, e.Server, true, time.Time{}, nil, false
	case Expired:
		if e.Lost {
			f.Losing = true
			f.Losses++
		}
		f.Session, f.Up, f.Idle = 0, false, time.Now()
	case Broken:
		f.Up, f.Idle = false, time.Now()
		f.Breaks++
		if e.Err != nil {
			f.Failure = fmt.Errorf("%s: %w", e.Server, e.Err)
		}
	case Closing:
		f.Closed = true
	case Closed:
		f.Closed, f.Failure = true, e.Err
	}
}

// Facts returns what is known about the connection at the time of the call.
func (r *Record) Facts() Facts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.facts
}

// Poll infers events from the state of a connection that was opened without package zkdial, and records them
// without a call of the observer. Events are late by up to the time between two calls of Poll. Poll cannot notice
// Closing, the reason of a break, and a break if the state is the same before and after it.
func (r *Record) Poll(conn *zk.Conn) {
	r.mu.Lock()
	dialed := r.dialed
	r.mu.Unlock()
	if dialed {
		return
	}
	state, session, server := conn.State(), conn.SessionID(), ""
	up := state == zk.StateHasSession
	if up {
		// Call Server only on a connection that is up: the client library holds the lock that Server needs while it
		// connects; see the function server.
		server = conn.Server()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &r.facts
	if f.Up && (!up || session != f.Session || server != f.Server) {
		r.apply(Event{Kind: Broken, Server: f.Server})
	}
	f.Session = session
	switch {
	case up && !f.Up:
		// The connection is up, so the record is closed only because the client library seemed to hang, and not by
		// the owner.
		f.Closed = f.Closed && f.Failure == nil
		r.apply(Event{Kind: Established, Server: server, Session: session})
	case !up && state != zk.StateDisconnected:
		f.Idle = time.Time{}
	case !up && f.Idle.IsZero():
		f.Idle = time.Now()
	}
}

// Map holds one value for each connection. Its methods may be called from any goroutine.
type Map[V any] struct {
	create func(*zk.Conn) V

	mu     sync.Mutex
	values map[weak.Pointer[zk.Conn]]func() V // each function creates the value in its first call
}

// NewMap returns an empty map. create returns the value of a connection, and is called once for each connection,
// without a lock of the map. Nothing that is reachable from the value may refer to the connection for longer than a
// request takes, because the connection and its value would then stay in memory.
func NewMap[V any](create func(*zk.Conn) V) *Map[V] {
	return &Map[V]{create: create, values: map[weak.Pointer[zk.Conn]]func() V{}}
}

// Of returns the value of conn, which must not be nil. It waits while a concurrent call creates the value.
func (m *Map[V]) Of(conn *zk.Conn) V {
	return m.valueOf(conn)()
}

func (m *Map[V]) valueOf(conn *zk.Conn) func() V {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := weak.Make(conn)
	value := m.values[key]
	if value == nil {
		value = sync.OnceValue(func() V { return m.create(conn) })
		m.values[key] = value
		runtime.AddCleanup(conn, m.forget, key)
	}
	return value
}

// forget removes the value of a connection that the program does not reference any more.
func (m *Map[V]) forget(key weak.Pointer[zk.Conn]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
}

// Table is a map that the users of one connection share.
type Table[K comparable, V any] struct {
	sync.Mutex
	Entries map[K]V
}

// Tables holds one table for each connection. Its methods may be called from any goroutine.
type Tables[K comparable, V any] struct{ tables *Map[*Table[K, V]] }

// NewTables returns empty tables.
func NewTables[K comparable, V any]() Tables[K, V] {
	return Tables[K, V]{NewMap(func(*zk.Conn) *Table[K, V] { return newTable[K, V]() })}
}

func newTable[K comparable, V any]() *Table[K, V] { return &Table[K, V]{Entries: map[K]V{}} }

// Lock locks the table of conn and returns it. The caller must unlock it.
func (t Tables[K, V]) Lock(conn *zk.Conn) *Table[K, V] {
	table := t.tables.Of(conn)
	table.Lock()
	return table
}

// maxRemembered limits the number of entries of a table to which Remember adds.
const maxRemembered = 1024

// Remember sets an entry that may be lost, because the caller can find out its value again. If the table is full,
// Remember first removes all entries.
func (t *Table[K, V]) Remember(key K, value V) {
	if _, known := t.Entries[key]; !known && len(t.Entries) >= maxRemembered {
		clear(t.Entries)
	}
	t.Entries[key] = value
}

// Granted returns the session timeout that the servers have granted to conn in the last handshake, or 0 if that
// timeout is not known: there was no session yet, or the connection was opened without package zkdial and is down.
func Granted(conn *zk.Conn) time.Duration { return RecordOf(conn).Granted(conn) }

// Granted does what the function Granted does. conn must be the connection of this record.
func (r *Record) Granted(conn *zk.Conn) time.Duration {
	r.mu.Lock()
	read := r.read
	r.mu.Unlock()
	if read > 0 {
		return read
	}
	// Until the first session begins, the field of the client library contains the requested timeout.
	if conn.State() != zk.StateHasSession {
		return 0
	}
	return max(readTimeoutField(conn), 0)
}

// timeoutField is the index of the client library's field that contains the granted timeout, or -1 if this release
// of the library does not contain the field.
var timeoutField = func() int {
	f, found := reflect.TypeFor[zk.Conn]().FieldByName("sessionTimeoutMs")
	if !found || len(f.Index) != 1 || !f.Type.ConvertibleTo(reflect.TypeFor[int64]()) || !reflect.Zero(f.Type).CanInt() {
		return -1
	}
	return f.Index[0]
}()

// readTimeoutField reads the granted timeout from the connection. The library writes it without a lock before the
// state becomes StateHasSession. A read during the next handshake returns the timeout before or after it,
// and the race detector would report it.
//
//go:norace
func readTimeoutField(conn *zk.Conn) time.Duration {
	if timeoutField < 0 {
		return 0
	}
	return time.Duration(reflect.ValueOf(conn).Elem().Field(timeoutField).Int()) * time.Millisecond
}
