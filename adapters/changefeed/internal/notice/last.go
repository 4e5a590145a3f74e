package notice

import "github.com/go-leaderelection/leaderelection/adapters/changefeed"

// Last is the event that a feed has delivered last. It decides what a message is worth: clients
// without any access to the record may be able to send messages, so a message is a hint, and
// only a read proves anything. One goroutine uses it.
type Last struct {
	told  bool
	event changefeed.Event
}

// Heartbeat reports whether r, which came by a message, claims no more than that the leader that
// was delivered last has written the next heartbeat. Such a message may be delivered as a hint
// ([changefeed.Event]); any other message is a reason to read the record.
func (l *Last) Heartbeat(r changefeed.Record) bool {
	next := l.event.Record
	next.Seq, next.Version, next.Time = next.Seq+1, r.Version, r.Time
	return !l.event.Missing && next.Leader != "" && r == next
}

// Same reports whether e adds nothing to what was delivered. A record that was read after a hint
// of it does: it is proof.
func (l *Last) Same(e changefeed.Event) bool { return l.told && l.event == e }

// Set notes that e is delivered.
func (l *Last) Set(e changefeed.Event) { l.told, l.event = true, e }

// Told reports whether anything was delivered.
func (l *Last) Told() bool { return l.told }
