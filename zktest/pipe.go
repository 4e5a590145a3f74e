package zktest

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// pipeBuffer is the number of bytes that a writer can write before it must wait for the reader. The
// size is that of a socket's buffer. With net.Pipe each write would wait for the reader, and a client's
// ping would fail if the server is busy.
const pipeBuffer = 1 << 20

// newPipe returns the two sides of an in-memory connection.
func newPipe() (client, server net.Conn) {
	up, down := newStream(), newStream()
	return &pipeConn{r: down, w: up}, &pipeConn{r: up, w: down}
}

// stream is one direction of a pipe.
type stream struct {
	mu       sync.Mutex
	changed  sync.Cond
	buf      []byte
	off      int
	finished bool // reports that the writer has closed the stream; buf can still be read
	broken   bool // reports that the reader has closed the stream
	read     deadline
	write    deadline
}

func newStream() *stream {
	s := new(stream)
	s.changed.L = &s.mu
	return s
}

// deadline is the deadline of the reads or writes on one side of a pipe.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) isPast() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// waitChange waits until the stream changes or the deadline d has passed.
func (s *stream) waitChange(d *deadline) {
	if d.at.IsZero() {
		s.changed.Wait()
		return
	}
	left := time.Until(d.at)
	if d.timer == nil {
		d.timer = time.AfterFunc(left, s.wakeWaiters)
	} else {
		d.timer.Reset(left)
	}
	s.changed.Wait()
	d.timer.Stop()
}

func (s *stream) wakeWaiters() {
	s.mu.Lock()
	s.changed.Broadcast()
	s.mu.Unlock()
}

type pipeConn struct{ r, w *stream }

// pipeError returns err as a *net.OpError, like a socket, because the code under test may depend on
// the type.
func pipeError(op string, err error) error {
	return &net.OpError{Op: op, Net: "zktest", Source: pipeAddr("pipe"), Addr: pipeAddr("pipe"), Err: err}
}

// Read returns the bytes that are available. If there are none, it waits until the other side writes
// some.
func (p *pipeConn) Read(b []byte) (int, error) {
	s := p.r
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.broken:
			return 0, pipeError("read", net.ErrClosed)
		case s.read.isPast():
			return 0, pipeError("read", os.ErrDeadlineExceeded)
		case s.off < len(s.buf):
			n := copy(b, s.buf[s.off:])
			full := len(s.buf)-s.off >= pipeBuffer
			if s.off += n; s.off == len(s.buf) {
				s.buf, s.off = s.buf[:0], 0
				if cap(s.buf) > 64<<10 {
					s.buf = nil
				}
			}
			if full {
				s.changed.Broadcast()
			}
			return n, nil
		case s.finished:
			return 0, io.EOF
		case len(b) == 0:
			return 0, nil
		}
		s.waitChange(&s.read)
	}
}

// Write queues b for the other side. It waits while the queue is full.
func (p *pipeConn) Write(b []byte) (int, error) {
	s := p.w
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.finished:
			return 0, pipeError("write", net.ErrClosed)
		case s.broken:
			return 0, pipeError("write", os.NewSyscallError("write", syscall.EPIPE))
		case s.write.isPast():
			return 0, pipeError("write", os.ErrDeadlineExceeded)
		case len(s.buf)-s.off < pipeBuffer:
			if s.off > 0 && len(s.buf)+len(b) > cap(s.buf) {
				s.buf = s.buf[:copy(s.buf, s.buf[s.off:])]
				s.off = 0
			}
			s.buf = append(s.buf, b...)
			s.changed.Broadcast()
			return len(b), nil
		}
		s.waitChange(&s.write)
	}
}

// Close closes both directions. The other side can still read the bytes that were written before.
func (p *pipeConn) Close() error {
	p.w.mu.Lock()
	if p.w.finished {
		p.w.mu.Unlock()
		return pipeError("close", net.ErrClosed)
	}
	p.w.finished = true
	p.w.changed.Broadcast()
	p.w.mu.Unlock()
	p.r.mu.Lock()
	p.r.broken = true
	p.r.changed.Broadcast()
	p.r.mu.Unlock()
	return nil
}

func (p *pipeConn) LocalAddr() net.Addr  { return pipeAddr("pipe") }
func (p *pipeConn) RemoteAddr() net.Addr { return pipeAddr("pipe") }

func (p *pipeConn) SetDeadline(t time.Time) error {
	p.SetReadDeadline(t)
	return p.SetWriteDeadline(t)
}

func (p *pipeConn) SetReadDeadline(t time.Time) error {
	p.r.setDeadline(&p.r.read, t)
	return nil
}

func (p *pipeConn) SetWriteDeadline(t time.Time) error {
	p.w.setDeadline(&p.w.write, t)
	return nil
}

func (s *stream) setDeadline(d *deadline, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.at.Equal(t) {
		return
	}
	d.at = t
	s.changed.Broadcast()
}
