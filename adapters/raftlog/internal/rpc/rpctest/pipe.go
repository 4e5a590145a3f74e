// Package rpctest has what tests of calls run on: connections in memory, and peers that
// keep one log in memory and fail as they are told.
package rpctest

import (
	"fmt"
	"io"
	"sync"
)

// Pipe returns both ends of a connection in memory. A frame is handed over when the other
// end reads it. It works in bubbles of testing/synctest.
func Pipe() (a, b *End) {
	ab, ba := make(chan []byte), make(chan []byte)
	closed := &closing{done: make(chan struct{})}
	return &End{in: ba, out: ab, closed: closed}, &End{in: ab, out: ba, closed: closed}
}

type closing struct {
	once sync.Once
	done chan struct{}
}

// End is one end of a connection.
type End struct {
	in     <-chan []byte
	out    chan<- []byte
	closed *closing

	mu      sync.Mutex
	written int
}

// Written is how many frames this end has written.
func (e *End) Written() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.written
}

// ReadFrame waits for a frame, and returns io.EOF when either end is closed.
func (e *End) ReadFrame() ([]byte, error) {
	select {
	case frame := <-e.in:
		return frame, nil
	case <-e.closed.done:
		return nil, io.EOF
	}
}

// WriteFrame waits until the other end has read the frame, a copy of it.
func (e *End) WriteFrame(frame []byte) error {
	select {
	case e.out <- append([]byte(nil), frame...):
		e.mu.Lock()
		e.written++
		e.mu.Unlock()
		return nil
	case <-e.closed.done:
		return fmt.Errorf("writing a frame: %w", io.ErrClosedPipe)
	}
}

// Close ends the connection for both ends.
func (e *End) Close() error {
	e.closed.once.Do(func() { close(e.closed.done) })
	return nil
}
