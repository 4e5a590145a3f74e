package testenv

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is one end of a connection on a Network. It implements net.Conn.
type conn struct {
	network       *Network
	local, remote string
	otherEnd      *conn
	in, out       *stream
	once          sync.Once
}

func (c *conn) Read(p []byte) (int, error)        { return c.in.readBytes(p) }
func (c *conn) Write(p []byte) (int, error)       { return c.out.writeBytes(p) }
func (c *conn) LocalAddr() net.Addr               { return Addr(c.local) }
func (c *conn) RemoteAddr() net.Addr              { return Addr(c.remote) }
func (c *conn) SetReadDeadline(t time.Time) error { return c.in.setDeadline(&c.in.readDeadline, t) }

func (c *conn) SetWriteDeadline(t time.Time) error { return c.out.setDeadline(&c.out.writeDeadline, t) }

func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		err = nil
		c.in.closeEnd(&c.in.readerGone)
		c.out.closeEnd(&c.out.writerGone)
		c.network.mu.Lock()
		delete(c.network.conns, c)
		c.network.mu.Unlock()
	})
	return err
}

// chunk is the data of one write.
type chunk struct {
	data    []byte
	arrival time.Time // the time from which the data can be read
}

// stream is the data in one direction of a connection.
type stream struct {
	network   *Network
	direction direction

	mu            sync.Mutex
	changed       chan struct{} // closed and replaced whenever the stream changes
	chunks        []chunk
	size          int
	lastArrival   time.Time // the arrival time of the last chunk
	readerGone    bool
	writerGone    bool
	broken        bool
	readDeadline  time.Time
	writeDeadline time.Time
}

// notifyChange wakes all goroutines that wait for a change of s. The caller holds s.mu.
func (s *stream) notifyChange() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// closeEnd records that one end of the stream is closed. which points to readerGone or writerGone. If the
// reader is gone, the data that was not read yet is lost.
func (s *stream) closeEnd(which *bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*which = true
	if s.readerGone {
		s.chunks, s.size = nil, 0
	}
	s.notifyChange()
}

// breakOff makes reads and writes of the stream fail, and loses the data that is not read yet.
func (s *stream) breakOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken, s.chunks, s.size = true, nil, 0
	s.notifyChange()
}

func (s *stream) setDeadline(which *time.Time, t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*which = t
	s.notifyChange()
	return nil
}

// waitForChange waits until the stream or the network has changed, or until the earliest of the times
// that are not zero.
func waitForChange(changed, conditions <-chan struct{}, times ...time.Time) {
	var timeout <-chan time.Time
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if !first.IsZero() {
		timer := time.NewTimer(time.Until(first))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-changed:
	case <-conditions:
	case <-timeout:
	}
}

// isPast reports whether a deadline is set and has passed.
func isPast(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

func (s *stream) readBytes(p []byte) (int, error) {
	for {
		// Get the conditions of the network before the state of the stream, so that the wait misses no
		// change of either.
		now, conditions := s.network.conditionOf(s.direction)
		s.mu.Lock()
		switch {
		case s.readerGone:
			s.mu.Unlock()
			return 0, net.ErrClosed
		case s.broken:
			s.mu.Unlock()
			return 0, syscall.ECONNRESET
		case isPast(s.readDeadline):
			s.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			s.mu.Unlock()
			return 0, nil
		}
		var arrives time.Time
		if !now.cut {
			if n := s.receiveChunks(p); n > 0 {
				s.notifyChange()
				s.mu.Unlock()
				return n, nil
			}
			if len(s.chunks) > 0 {
				arrives = s.chunks[0].arrival
			} else if s.writerGone {
				s.mu.Unlock()
				return 0, io.EOF
			}
		}
		changed, deadline := s.changed, s.readDeadline
		s.mu.Unlock()
		waitForChange(changed, conditions, arrives, deadline)
	}
}

// receiveChunks moves data that has arrived from the stream to p.
func (s *stream) receiveChunks(p []byte) (n int) {
	for n < len(p) && len(s.chunks) > 0 && !time.Now().Before(s.chunks[0].arrival) {
		first := &s.chunks[0]
		m := copy(p[n:], first.data)
		n += m
		if first.data = first.data[m:]; len(first.data) == 0 {
			s.chunks = s.chunks[1:]
		}
	}
	s.size -= n
	return n
}

func (s *stream) writeBytes(p []byte) (written int, err error) {
	back := direction{s.direction.to, s.direction.from}
	for {
		there, _ := s.network.conditionOf(s.direction)
		reverse, conditions := s.network.conditionOf(back)
		s.mu.Lock()
		switch {
		case s.writerGone:
			err = net.ErrClosed
		case s.broken:
			err = syscall.ECONNRESET
		case s.readerGone && !reverse.cut: // a cut hides from the writer that the reader is gone
			err = syscall.EPIPE
		case isPast(s.writeDeadline):
			err = os.ErrDeadlineExceeded
		}
		if m := min(len(p)-written, capacity-s.size); err == nil && m > 0 {
			if at := time.Now().Add(there.delay); at.After(s.lastArrival) {
				s.lastArrival = at
			}
			if !s.readerGone {
				s.chunks = append(s.chunks, chunk{append([]byte(nil), p[written:written+m]...), s.lastArrival})
			}
			s.size += m
			written += m
			s.notifyChange()
		}
		if err != nil || written == len(p) {
			s.mu.Unlock()
			return written, err
		}
		changed, deadline := s.changed, s.writeDeadline
		s.mu.Unlock()
		waitForChange(changed, conditions, deadline)
	}
}
