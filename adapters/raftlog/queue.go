package raftlog

import "sync"

// queue takes elements without making anybody wait, and gives them to one goroutine, all
// that have come together at a time.
type queue[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{} // has an element if items has, or may have
}

func newQueue[T any]() *queue[T] { return &queue[T]{wake: make(chan struct{}, 1)} }

func (q *queue[T]) put(items ...T) {
	if len(items) == 0 {
		return
	}
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns what there is, perhaps nothing, after wake has had an element.
func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}
