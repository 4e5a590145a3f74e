package connection

import (
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/go-zookeeper/zk"
)

// AssumedTimeout is the session timeout that is assumed if the granted one is not known. It is the
// shortest that a server with default settings grants, two ticks of two seconds.
const AssumedTimeout = 4 * time.Second

// SessionTimeout returns the session timeout to use for conn: the configured one (stated; 0 for none),
// but at most the granted one. If none is configured it is the granted one, or AssumedTimeout if that
// is not known.
func SessionTimeout(conn *zk.Conn, stated time.Duration) time.Duration {
	return choose(stated, Granted(conn))
}

func choose(stated, granted time.Duration) time.Duration {
	switch {
	case stated > 0 && granted > 0:
		return min(stated, granted)
	case stated > 0:
		return stated
	case granted > 0:
		return granted
	}
	return AssumedTimeout
}

// ValidateTimeout returns an error for a configured session timeout that exceeds the timeout that the
// servers are known to have granted to conn. It also starts to detect pauses of the process.
func ValidateTimeout(conn *zk.Conn, stated time.Duration) error {
	if granted := Granted(conn); granted > 0 && stated > granted {
		return fmt.Errorf("the servers have granted %v; omit the option or use at most that value", granted)
	}
	DetectPauses(conn)
	return nil
}

// LogTo sets the logger for warnings: that the servers grant less than the timeout of Subscribe,
// that no server has continued the session for longer than its timeout, or that sessions end
// shortly after they began.
func (s *Subscription) LogTo(log *slog.Logger) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.log = log
	s.m.warn(s)
}

// timeout returns the timeout of subscriptions that state this one. The caller holds mu.
func (m *monitor) timeout(stated time.Duration) time.Duration {
	return choose(stated, m.lease.timeout)
}

// updateTimeout sets the timeout of the lease: the granted one, or, if that is not known, the
// longest that a subscription states, or else AssumedTimeout. A longer one than before does not apply to
// earlier proofs, for which the servers used the shorter one. The caller holds mu.
func (m *monitor) updateTimeout() {
	timeout := m.granted
	if timeout == 0 {
		for _, v := range m.validities {
			timeout = max(timeout, v.stated)
		}
		if timeout == 0 {
			timeout = AssumedTimeout
		}
	}
	if timeout < m.lease.timeout || len(m.lease.proofs) == 0 {
		m.lease.timeout = timeout
	}
}

// updateGranted reads the granted timeout of a connection that is up. The caller holds mu.
func (m *monitor) updateGranted() {
	granted := m.record.Granted(m.conn)
	if granted == 0 || granted == m.granted {
		return
	}
	m.granted = granted
	m.updateTimeout()
	for s := range m.subs {
		m.warn(s)
	}
}

// warn logs a warning if the servers grant less than the timeout of a subscription. The caller
// holds mu.
func (m *monitor) warn(s *Subscription) {
	if s.log == nil || m.granted == 0 || s.stated <= m.granted {
		return
	}
	m.logLater(s.log, slog.LevelWarn, "WithSessionTimeout states more than the servers have granted: leases are shortened",
		"stated", s.stated, "granted", m.granted)
}

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
