package transport

import (
	"context"
	"sync"
)

// mailboxSize is the maximum number of IDs in a mailbox. If a mailbox is full, adding an ID removes the
// oldest one.
const mailboxSize = 1024

// mailbox delivers IDs to a reader that may be slow. Adding an ID does not block, and has no effect if
// the mailbox already contains the ID.
type mailbox struct {
	out  chan string
	wake chan struct{}

	mu      sync.Mutex
	waiting []string
	known   map[string]struct{}
}

func newMailbox() *mailbox {
	return &mailbox{out: make(chan string), wake: make(chan struct{}, 1), known: map[string]struct{}{}}
}

// addID adds an ID to the mailbox, unless the mailbox already contains it.
func (m *mailbox) addID(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.known[id]; ok {
		return
	}
	if len(m.waiting) == mailboxSize {
		delete(m.known, m.waiting[0])
		m.waiting = m.waiting[1:]
	}
	m.known[id] = struct{}{}
	m.waiting = append(m.waiting, id)
	signal(m.wake)
}

// takeID removes an ID from the mailbox and returns it. It removes the ID before the delivery, so that
// the ID is delivered again if it is added during the delivery.
func (m *mailbox) takeID() (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) == 0 {
		return "", false
	}
	id := m.waiting[0]
	m.waiting = m.waiting[1:]
	delete(m.known, id)
	return id, true
}

// deliver sends the IDs of the mailbox to m.out until ctx is done.
func (m *mailbox) deliver(ctx context.Context) {
	for {
		id, ok := m.takeID()
		if ok {
			select {
			case m.out <- id:
			case <-ctx.Done():
				return
			}
			continue
		}
		select {
		case <-m.wake:
		case <-ctx.Done():
			return
		}
	}
}
