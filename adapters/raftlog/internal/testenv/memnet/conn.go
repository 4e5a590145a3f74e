package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is one end of a connection.
type conn struct {
	network       *Network
	local, remote string
	peer          *conn
	in, out       *stream
	once          sync.Once
}

func (c *conn) Read(p []byte) (int, error)         { return c.in.read(p) }
func (c *conn) Write(p []byte) (int, error)        { return c.out.write(p) }
func (c *conn) LocalAddr() net.Addr                { return Addr(c.local) }
func (c *conn) RemoteAddr() net.Addr               { return Addr(c.remote) }
func (c *conn) SetReadDeadline(t time.Time) error  { return c.in.setDeadline(&c.in.readBy, t) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.out.setDeadline(&c.out.writeBy, t) }

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
		c.in.close(&c.in.readerGone)
		c.out.close(&c.out.writerGone)
		c.network.mu.Lock()
		delete(c.network.conns, c)
		c.network.mu.Unlock()
	})
	return err
}

// chunk is a piece of what is on its way.
type chunk struct {
	data []byte
	at   time.Time // when it has arrived
}

// stream is one direction of a connection.
type stream struct {
	network   *Network
	direction direction

	mu         sync.Mutex
	changed    chan struct{} // closed at the next change
	chunks     []chunk
	size       int
	last       time.Time // when the newest chunk has arrived
	readerGone bool
	writerGone bool
	broken     bool
	readBy     time.Time
	writeBy    time.Time
}

func (s *stream) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stream) close(which *bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*which = true
	if s.readerGone {
		s.chunks, s.size = nil, 0
	}
	s.announce()
}

func (s *stream) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken, s.chunks, s.size = true, nil, 0
	s.announce()
}

func (s *stream) setDeadline(which *time.Time, t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*which = t
	s.announce()
	return nil
}

// wait waits for a change of the stream or the network, or until the sooner of two times
// that are not zero.
func wait(changed, conditions <-chan struct{}, times ...time.Time) {
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

func over(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

func (s *stream) read(p []byte) (int, error) {
	for {
		// Before the stream is looked at, so that no change is missed.
		now, conditions := s.network.condition(s.direction)
		s.mu.Lock()
		switch {
		case s.readerGone:
			s.mu.Unlock()
			return 0, net.ErrClosed
		case s.broken:
			s.mu.Unlock()
			return 0, syscall.ECONNRESET
		case over(s.readBy):
			s.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			s.mu.Unlock()
			return 0, nil
		}
		var arrives time.Time
		if !now.cut {
			if n := s.deliver(p); n > 0 {
				s.announce()
				s.mu.Unlock()
				return n, nil
			}
			if len(s.chunks) > 0 {
				arrives = s.chunks[0].at
			} else if s.writerGone {
				s.mu.Unlock()
				return 0, io.EOF
			}
		}
		changed, deadline := s.changed, s.readBy
		s.mu.Unlock()
		wait(changed, conditions, arrives, deadline)
	}
}

func (s *stream) deliver(p []byte) (n int) {
	for n < len(p) && len(s.chunks) > 0 && !time.Now().Before(s.chunks[0].at) {
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

func (s *stream) write(p []byte) (written int, err error) {
	back := direction{s.direction.to, s.direction.from}
	for {
		there, _ := s.network.condition(s.direction)
		reverse, conditions := s.network.condition(back)
		s.mu.Lock()
		switch {
		case s.writerGone:
			err = net.ErrClosed
		case s.broken:
			err = syscall.ECONNRESET
		case s.readerGone && !reverse.cut: // else the news of it does not come
			err = syscall.EPIPE
		case over(s.writeBy):
			err = os.ErrDeadlineExceeded
		}
		if m := min(len(p)-written, capacity-s.size); err == nil && m > 0 {
			if at := time.Now().Add(there.delay); at.After(s.last) {
				s.last = at
			}
			if !s.readerGone {
				s.chunks = append(s.chunks, chunk{append([]byte(nil), p[written:written+m]...), s.last})
			}
			s.size += m
			written += m
			s.announce()
		}
		if err != nil || written == len(p) {
			s.mu.Unlock()
			return written, err
		}
		changed, deadline := s.changed, s.writeBy
		s.mu.Unlock()
		wait(changed, conditions, deadline)
	}
}
