package notice

import "github.com/go-leaderelection/leaderelection/adapters/changefeed"

// Last is what a feed has told last. One goroutine uses it.
type Last struct {
	told  bool
	event changefeed.Event
}

// Follows says that r, which came by a message, is to be told as it is: it was written
// after what was told. What else a message says may be older than what was read, or of
// another record, and the record has to be read.
func (l *Last) Follows(r changefeed.Record) bool {
	return l.told && !l.event.Missing && r.Epoch == l.event.Record.Epoch && r.Seq > l.event.Record.Seq
}

// Same says that e was told already.
func (l *Last) Same(e changefeed.Event) bool {
	return l.told && l.event.Missing == e.Missing && l.event.Record.Version == e.Record.Version
}

// Set notes that e is told.
func (l *Last) Set(e changefeed.Event) { l.told, l.event = true, e }

// Told says that anything was told.
func (l *Last) Told() bool { return l.told }
