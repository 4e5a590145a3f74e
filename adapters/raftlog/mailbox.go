package raftlog

import "sync"

// mailbox passes elements to one goroutine, which receives all elements that were added since it last received.
// Adding an element does not block.
type mailbox[T any] struct {
	mu    sync.Mutex
	items []T
	added chan struct{} // contains a token if items may not be empty
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{added: make(chan struct{}, 1)} }

func (m *mailbox[T]) add(items ...T) {
	if len(items) == 0 {
		return
	}
	m.addSilently(items...)
	signal(m.added)
}

// addSilently adds elements without waking the goroutine, which receives them with the next elements.
func (m *mailbox[T]) addSilently(items ...T) {
	m.mu.Lock()
	m.items = append(m.items, items...)
	m.mu.Unlock()
}

// takeAll returns the elements, possibly none, after added has contained a token.
func (m *mailbox[T]) takeAll() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items = nil
	return items
}

// signal adds a token to a channel with a capacity of one, unless the channel already contains a token.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
