package connection

import (
	"time"

	"github.com/go-zookeeper/zk"
)

// polled is the state of the client library.
type polled struct {
	session int64
	server  string
	up      bool
}

// Poll records the events that follow from the state of a connection that was opened without package
// zkdial. They are late by the time between two calls, and some are not noticed: a break before
// which and after which the connection has the same state, the reason of a break, and Closing. Poll
// does not call the observer.
func (r *Record) Poll(conn *zk.Conn) {
	if r.Dialed() {
		return
	}
	state := conn.State()
	now := polled{session: conn.SessionID(), up: state == zk.StateHasSession}
	if now.up {
		// While it is not connected, the client library holds the lock that Server needs
		// until the HostProvider has returned the next server, which may be a DNS lookup
		// that blocks.
		now.server = conn.Server()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.polled
	r.polled = now
	if before.up && now != before {
		r.apply(Event{Kind: Broken, Server: before.server})
	}
	r.facts.Session = now.session
	switch {
	case now.up && (now != before || !r.facts.Up):
		// A Closed with a reason was not caused by the owner: the client library seemed to hang.
		r.facts.Closed = r.facts.Closed && r.failure == nil
		r.apply(Event{Kind: Established, Server: now.server, Session: now.session})
	case !now.up && state != zk.StateDisconnected:
		r.facts.Idle = time.Time{}
	case !now.up && r.facts.Idle.IsZero():
		r.facts.Idle = time.Now()
	}
}
