package transport

import (
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// session is a connection on which this peer exchanges frames with another peer.
type session struct {
	transport *Transport
	peer      *peer
	conn      *link.Conn
	wake      chan struct{}
	done      chan struct{}
	once      sync.Once
	draining  bool // whether the session ends when the queues are empty; guarded by Transport.mu
}

func (t *Transport) newSession(p *peer, conn *link.Conn) *session {
	return &session{transport: t, peer: p, conn: conn, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// wakeUp makes the goroutine of sendFrames look for new frames.
func (s *session) wakeUp() { signal(s.wake) }

// signal sends a value to a channel of capacity 1, unless the channel already contains one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// close ends the session and closes its connection. It may be called repeatedly.
func (s *session) close() {
	s.once.Do(func() {
		close(s.done)
		s.conn.Close()
	})
}

// closeIfNotAccepted closes the session if Config.Accepts rejects the other side now.
func (s *session) closeIfNotAccepted() {
	t := s.transport
	if t.cfg.Accepts == nil {
		return
	}
	if err := t.cfg.Accepts(s.conn.Remote()); err != nil {
		t.cfg.Log.Error("closing the connection of a peer that is not accepted any more", "remote", s.peer.id, "from", s.conn.RemoteAddr().String(), "err", err)
		s.close()
	}
}

// CheckPeers closes the connections to all peers that Config.Accepts rejects now.
func (t *Transport) CheckPeers() {
	var all []*session
	t.mu.Lock()
	for _, p := range t.peers {
		for _, s := range []*session{p.accepted, p.dialed} {
			if s != nil {
				all = append(all, s)
			}
		}
	}
	t.mu.Unlock()
	for _, s := range all {
		s.closeIfNotAccepted()
	}
}

// serve receives and sends frames until the session ends, and returns the reason why it has ended.
func (s *session) serve() error {
	// CheckPeers may have run between the handshake and the creation of this session: check again.
	s.closeIfNotAccepted()
	s.conn.SetTimeouts(readTimeout, writeTimeout)
	var writer sync.WaitGroup
	var writeErr error
	writer.Go(func() {
		defer s.close()
		writeErr = s.sendFrames()
	})
	err := s.receiveFrames()
	select {
	case <-s.done: // the goroutine that writes has ended the session
		writer.Wait()
		if writeErr != nil {
			err = writeErr
		}
	default:
		s.close()
		writer.Wait()
	}
	s.transport.removeSession(s)
	return err
}

// receiveFrames passes received frames to the user of the Transport until the session ends.
func (s *session) receiveFrames() error {
	from := s.conn.Remote()
	for {
		data, err := s.conn.ReadFrame()
		if err != nil {
			return err
		}
		if len(data) == 0 {
			continue // an empty frame only shows that the connection is alive
		}
		if refused := decodeRefusal(data); refused != nil {
			if s.transport.cfg.OnRefused != nil {
				s.transport.cfg.OnRefused(from.ID, refused)
			}
			return refused
		}
		select {
		case <-s.done: // drop frames that arrived before the session was closed
			return nil
		default:
		}
		select {
		case s.transport.frames <- Frame{From: from, Data: data}:
		case <-s.done:
			return nil
		case <-s.transport.ctx.Done():
			return nil
		}
	}
}

// sendFrames sends the queued frames in batches. Each batch contains all urgent frames, and as many other
// frames as batchBytes allows.
func (s *session) sendFrames() error {
	ticker := time.NewTicker(keepaliveInterval)
	defer ticker.Stop()
	var batch [][]byte
	idle := true
	for {
		var done bool
		batch, done = s.nextBatch(batch[:0])
		if len(batch) == 0 {
			if done {
				return nil
			}
			select {
			case <-s.wake:
			case <-s.done:
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

// nextBatch appends the frames to send next to batch. If done is true, the session must end after these
// frames.
func (s *session) nextBatch(batch [][]byte) (_ [][]byte, done bool) {
	s.transport.mu.Lock()
	defer s.transport.mu.Unlock()
	if s.peer.sender != s {
		return batch, s.draining
	}
	for s.peer.urgent.count > 0 {
		batch = append(batch, s.peer.urgent.popFrame())
	}
	for n := 0; n < batchBytes && s.peer.normal.count > 0; {
		frame := s.peer.normal.popFrame()
		n += len(frame)
		batch = append(batch, frame)
	}
	return batch, s.draining
}

// removeSession removes a session that has ended from its peer, and chooses another session to send
// frames on.
func (t *Transport) removeSession(s *session) {
	t.mu.Lock()
	p := s.peer
	lost := p.sender == s
	if p.dialed == s {
		p.dialed = nil
	}
	if p.accepted == s {
		p.accepted = nil
	}
	if lost {
		if p.sender = p.dialed; p.sender == nil {
			p.sender = p.accepted
		}
	}
	if p.sender != nil {
		p.sender.wakeUp()
	} else {
		lost = p.dropFrames() || lost
	}
	t.removeIfUnused(p)
	t.mu.Unlock()
	if lost {
		t.unreachable.addID(p.id)
	}
	t.closeTracked(s.conn)
}
