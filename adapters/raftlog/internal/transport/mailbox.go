package transport

import (
	"context"
	"sync"
)

// mailboxSize is how many IDs wait; of more the oldest are forgotten.
const mailboxSize = 1024

// mailbox tells IDs to a reader who may be slow, without making those who put them wait. An
// ID that waits already is not put again.
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

func (m *mailbox) put(id string) {
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
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// next takes an ID before it is told, not after: what is put while it is being told has to
// be told again.
func (m *mailbox) next() (string, bool) {
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

func (m *mailbox) deliver(ctx context.Context) {
	for {
		id, ok := m.next()
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
