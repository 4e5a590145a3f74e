package cache

import "sync"

// mailbox takes what many have for one, without ever making them wait.
type mailbox[T any] struct {
	ready chan struct{} // capacity 1: there is something to take

	mu     sync.Mutex
	items  []T
	closed bool
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{ready: make(chan struct{}, 1)} }

// put returns false when nobody will take the items any more.
func (m *mailbox[T]) put(items ...T) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.items = append(m.items, items...)
	select {
	case m.ready <- struct{}{}:
	default:
	}
	return true
}

// take returns everything that was put since the last call.
func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items = nil
	return items
}

// end is the last take.
func (m *mailbox[T]) end() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return m.items
}
