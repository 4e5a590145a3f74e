package zktest

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// pipeBuffer is how much a pipe takes before a writer has to wait, as much as a
// socket does. Unlike net.Pipe a write need not wait for the reader: a client's
// ping does not fail because the server is busy.
const pipeBuffer = 1 << 20

// newPipe makes the two ends of a connection in memory.
func newPipe() (client, server net.Conn) {
	up, down := newStream(), newStream()
	return &pipeEnd{r: down, w: up}, &pipeEnd{r: up, w: down}
}

// stream is one direction of a pipe.
type stream struct {
	mu       sync.Mutex
	changed  sync.Cond
	buf      []byte
	off      int
	finished bool // the writer has closed: what is in buf can still be read
	broken   bool // the reader has closed
	read     deadline
	write    deadline
}

func newStream() *stream {
	s := new(stream)
	s.changed.L = &s.mu
	return s
}

// deadline wakes who waits when it passes.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// wait waits for a change, at most until the deadline.
func (s *stream) wait(d *deadline) {
	if d.at.IsZero() {
		s.changed.Wait()
		return
	}
	left := time.Until(d.at)
	if d.timer == nil {
		d.timer = time.AfterFunc(left, s.wake)
	} else {
		d.timer.Reset(left)
	}
	s.changed.Wait()
	d.timer.Stop()
}

func (s *stream) wake() {
	s.mu.Lock()
	s.changed.Broadcast()
	s.mu.Unlock()
}

type pipeEnd struct{ r, w *stream }

// pipeError looks as a socket's error does, since code under test may ask.
func pipeError(op string, err error) error {
	return &net.OpError{Op: op, Net: "zktest", Source: pipeAddr("pipe"), Addr: pipeAddr("pipe"), Err: err}
}

// Read reads what there is, and waits if there is nothing.
func (p *pipeEnd) Read(b []byte) (int, error) {
	s := p.r
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.broken:
			return 0, pipeError("read", net.ErrClosed)
		case s.read.passed():
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
		s.wait(&s.read)
	}
}

// Write leaves b for the reader.
func (p *pipeEnd) Write(b []byte) (int, error) {
	s := p.w
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.finished:
			return 0, pipeError("write", net.ErrClosed)
		case s.broken:
			return 0, pipeError("write", os.NewSyscallError("write", syscall.EPIPE))
		case s.write.passed():
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
		s.wait(&s.write)
	}
}

// Close closes both directions. The other end still reads what was written before.
func (p *pipeEnd) Close() error {
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

func (p *pipeEnd) LocalAddr() net.Addr  { return pipeAddr("pipe") }
func (p *pipeEnd) RemoteAddr() net.Addr { return pipeAddr("pipe") }

func (p *pipeEnd) SetDeadline(t time.Time) error {
	p.SetReadDeadline(t)
	return p.SetWriteDeadline(t)
}

func (p *pipeEnd) SetReadDeadline(t time.Time) error {
	p.r.set(&p.r.read, t)
	return nil
}

func (p *pipeEnd) SetWriteDeadline(t time.Time) error {
	p.w.set(&p.w.write, t)
	return nil
}

func (s *stream) set(d *deadline, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.at.Equal(t) {
		return
	}
	d.at = t
	s.changed.Broadcast()
}
