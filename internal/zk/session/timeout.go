package session

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
)

// Assumed is the session timeout that is assumed while the granted one is not known: the
// smallest that a server with default settings grants, two ticks of two seconds.
const Assumed = 4 * time.Second

// Timeout returns the session timeout to use for conn: the one that an option
// states, 0 for none, but not more than the servers have granted; without the
// option the granted one, and Assumed while that is not known.
func Timeout(conn *zk.Conn, stated time.Duration) time.Duration {
	return choose(stated, handshake.Granted(conn))
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
	return Assumed
}

// Validate rejects an option that states a longer session timeout than the servers have
// granted to conn, as far as that is known. It also begins to watch for stops of the
// process.
func Validate(conn *zk.Conn, stated time.Duration) error {
	if granted := handshake.Granted(conn); granted > 0 && stated > granted {
		return fmt.Errorf("the servers have granted %v; omit the option or use at most that value", granted)
	}
	Attend(conn)
	return nil
}

// LogTo sets where a warning is logged if the servers turn out to grant less than the
// timeout of Subscribe.
func (s *Subscription) LogTo(log *slog.Logger) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.log = log
	s.m.warn(s)
}

// adopt uses the timeout that is known now. A longer one than before does not apply to
// what was proven before: the server counted by the shorter one then. The caller holds mu.
func (m *monitor) adopt() {
	timeout := choose(m.stated, m.granted)
	if timeout < m.lease.timeout || len(m.lease.proofs) == 0 {
		m.lease.timeout = timeout
	}
}

// learn notes the granted timeout, while the connection is up. The caller holds mu.
func (m *monitor) learn() {
	granted := m.record.Granted(m.conn)
	if granted == 0 || granted == m.granted {
		return
	}
	m.granted = granted
	m.adopt()
	for s := range m.subs {
		m.warn(s)
	}
}

// warn logs that the servers grant less than a subscription states. The caller holds mu.
func (m *monitor) warn(s *Subscription) {
	if s.log == nil || m.granted == 0 || s.stated <= m.granted {
		return
	}
	m.report(s.log, slog.LevelWarn, "WithSessionTimeout states more than the servers have granted: leases are shortened",
		"stated", s.stated, "granted", m.granted)
}
