package transport

import (
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// session is one connection for messages.
type session struct {
	t       *Transport
	p       *peer
	conn    *link.Conn
	wake    chan struct{}
	ended   chan struct{}
	once    sync.Once
	leaving bool // to be closed when all is sent; Transport.mu guards it
}

func (t *Transport) newSession(p *peer, conn *link.Conn) *session {
	return &session{t: t, p: p, conn: conn, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

func (s *session) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *session) end() {
	s.once.Do(func() {
		close(s.ended)
		s.conn.Close()
	})
}

// serve reads and writes until the session ends.
func (s *session) serve() error {
	s.conn.SetTimeouts(silence, stall)
	var writer sync.WaitGroup
	var writeErr error
	writer.Go(func() {
		defer s.end()
		writeErr = s.write()
	})
	err := s.read()
	select {
	case <-s.ended: // the writer was first
		writer.Wait()
		if writeErr != nil {
			err = writeErr
		}
	default:
		s.end()
		writer.Wait()
	}
	s.t.leave(s)
	return err
}

func (s *session) read() error {
	from := s.conn.Remote()
	for {
		data, err := s.conn.ReadFrame()
		if err != nil {
			return err
		}
		if len(data) == 0 {
			continue // a pulse
		}
		if refused := decodeRefusal(data); refused != nil {
			if s.t.cfg.OnRefused != nil {
				s.t.cfg.OnRefused(from.ID, refused)
			}
			return refused
		}
		select {
		case s.t.received <- Frame{From: from, Data: data}:
		case <-s.ended:
			return nil
		case <-s.t.ctx.Done():
			return nil
		}
	}
}

// write sends what comes, in batches: all that is urgent, and some of the rest.
func (s *session) write() error {
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	var batch [][]byte
	idle := true
	for {
		var done bool
		batch, done = s.take(batch[:0])
		if len(batch) == 0 {
			if done {
				return nil
			}
			select {
			case <-s.wake:
			case <-s.ended:
				return nil
			case <-ticker.C:
				if idle {
					if err := s.conn.WriteFrame(nil); err != nil {
						return err
					}
				}
				idle = true
			}
			continue
		}
		idle = false
		for i, frame := range batch {
			if err := s.conn.Buffer(frame); err != nil {
				return err
			}
			batch[i] = nil
		}
		if err := s.conn.Flush(); err != nil {
			return err
		}
	}
}

// take adds to a batch; done is whether nothing comes any more.
func (s *session) take(batch [][]byte) (_ [][]byte, done bool) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.p.active() != s {
		return batch, s.leaving
	}
	for s.p.urgent.count > 0 {
		batch = append(batch, s.p.urgent.pop())
	}
	for n := 0; n < batchBytes && s.p.normal.count > 0; {
		frame := s.p.normal.pop()
		n += len(frame)
		batch = append(batch, frame)
	}
	return batch, s.leaving
}

// leave takes a session that has ended from its peer.
func (t *Transport) leave(s *session) {
	t.mu.Lock()
	p := s.p
	lost := p.active() == s
	if p.out == s {
		p.out = nil
	}
	if p.in == s {
		p.in = nil
	}
	if lost {
		if p.sender = p.out; p.sender == nil {
			p.sender = p.in
		}
	}
	if other := p.active(); other != nil {
		other.wakeUp()
	} else {
		lost = p.clear() || lost
	}
	t.forget(p)
	t.mu.Unlock()
	if lost {
		t.unreachable.put(p.id)
	}
	t.release(s.conn)
}
