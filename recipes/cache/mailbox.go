package cache

import "sync"

// mailbox passes items from several goroutines to one goroutine. Adding an item does not block.
type mailbox[T any] struct {
	ready chan struct{} // has capacity 1, and contains an element while there are items

	mu     sync.Mutex
	items  []T
	closed bool
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{ready: make(chan struct{}, 1)} }

// addItems adds items. After close it does nothing.
func (m *mailbox[T]) addItems(items ...T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.items = append(m.items, items...)
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// takeItems returns the items that were added since the last call.
func (m *mailbox[T]) takeItems() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items = nil
	return items
}

// close discards the items, and all items that are added later.
func (m *mailbox[T]) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.items = true, nil
}
