package connection

import (
	"reflect"
	"time"

	"github.com/go-zookeeper/zk"
)

// Granted returns the session timeout that the servers have granted to conn, by the
// last handshake. It is 0 if it is not known: the connection has not had a session
// yet, or it was opened without package zkdial and is down.
func Granted(conn *zk.Conn) time.Duration { return RecordOf(conn).Granted(conn) }

// Granted is the function Granted for the connection of this record.
func (r *Record) Granted(conn *zk.Conn) time.Duration {
	r.mu.Lock()
	read := r.read
	r.mu.Unlock()
	if read > 0 {
		return read
	}
	// Until the first session begins, the field contains the requested timeout.
	if conn.State() != zk.StateHasSession {
		return 0
	}
	return max(field(conn), 0)
}

// timeoutField is the index of the client library's field; -1 if this release of the library does
// not contain it.
var timeoutField = func() int {
	f, found := reflect.TypeFor[zk.Conn]().FieldByName("sessionTimeoutMs")
	if !found || len(f.Index) != 1 || !f.Type.ConvertibleTo(reflect.TypeFor[int64]()) || !reflect.Zero(f.Type).CanInt() {
		return -1
	}
	return f.Index[0]
}()

// field reads the granted timeout from the connection. The library writes it without a
// lock when a server has granted it, before the state becomes StateHasSession. A read that
// coincides with the next handshake returns the timeout granted before or by that handshake. The
// function is exempt from the race detector, which would report it.
//
//go:norace
func field(conn *zk.Conn) time.Duration {
	if timeoutField < 0 {
		return 0
	}
	return time.Duration(reflect.ValueOf(conn).Elem().Field(timeoutField).Int()) * time.Millisecond
}
