// Package rpctest provides peers that share a log in memory and whose calls fail as configured, and
// connections to them, for tests of clients.
package rpctest

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// Pipe returns both ends of a connection in memory. Flush blocks until the other end reads, and then
// transfers all buffered frames. Pipe works in bubbles of testing/synctest.
func Pipe() (a, b *End) {
	ab, ba := make(chan [][]byte), make(chan [][]byte)
	closed := &closeSignal{done: make(chan struct{})}
	return &End{in: ba, out: ab, closed: closed}, &End{in: ab, out: ba, closed: closed}
}

// closeSignal is a channel that is closed when either end of a connection is closed.
type closeSignal struct {
	once sync.Once
	done chan struct{}
}

// End is one end of a connection. It implements rpc.Conn.
type End struct {
	in       <-chan [][]byte
	out      chan<- [][]byte
	closed   *closeSignal
	limits   link.FrameLimits
	received [][]byte // the frames that were transferred to this end and not read yet

	mu          sync.Mutex
	buffered    [][]byte
	size        int // the total size of the frames in buffered, in bytes
	written     int
	readTimeout time.Duration
}

// Written returns how often this end has transferred frames to the other end.
func (e *End) Written() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.written
}

// SetTimeouts sets the read timeout of this end. There is no write timeout.
func (e *End) SetTimeouts(read, _ time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readTimeout = read
}

// LimitFrames limits the size of the frames that this end receives. Frames are transferred completely,
// so they do not stall.
func (e *End) LimitFrames(l link.FrameLimits) { e.limits = l }

// ReadFrame waits for a frame. It returns io.EOF if either end is closed.
func (e *End) ReadFrame() ([]byte, error) {
	e.mu.Lock()
	silence := e.readTimeout
	e.mu.Unlock()
	if len(e.received) == 0 {
		var timeout <-chan time.Time
		if silence > 0 {
			timer := time.NewTimer(silence)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case e.received = <-e.in:
		case <-timeout:
			return nil, os.ErrDeadlineExceeded
		case <-e.closed.done:
			return nil, io.EOF
		}
	}
	frame := e.received[0]
	e.received = e.received[1:]
	if l := e.limits; l.Max > 0 && len(frame) > l.Max {
		return nil, link.ErrFrameTooLarge
	} else if l.Reserve != nil && len(frame) > l.Free {
		if err := l.Reserve(len(frame)); err != nil {
			return frame[:64], err
		}
	}
	return frame, nil
}

// bufferSize is the maximum size of the frames that are buffered without a Flush.
const bufferSize = 64 << 10

// Buffer stores a copy of the frame until Flush, or until the buffer is full.
func (e *End) Buffer(frame []byte) error {
	e.mu.Lock()
	e.buffered = append(e.buffered, append([]byte(nil), frame...))
	e.size += len(frame)
	full := e.size >= bufferSize
	e.mu.Unlock()
	if full {
		return e.Flush()
	}
	return nil
}

// Flush waits until the other end reads, and transfers the buffered frames to it.
func (e *End) Flush() error {
	e.mu.Lock()
	frames := e.buffered
	e.buffered, e.size = nil, 0
	e.mu.Unlock()
	if len(frames) == 0 {
		return nil
	}
	select {
	case e.out <- frames:
		e.mu.Lock()
		e.written++
		e.mu.Unlock()
		return nil
	case <-e.closed.done:
		return fmt.Errorf("write a frame: %w", io.ErrClosedPipe)
	}
}

// WriteFrame transfers the buffered frames and then the given frame.
func (e *End) WriteFrame(frame []byte) error {
	if err := e.Buffer(frame); err != nil {
		return err
	}
	return e.Flush()
}

// Close closes both ends of the connection.
func (e *End) Close() error {
	e.closed.once.Do(func() { close(e.closed.done) })
	return nil
}
