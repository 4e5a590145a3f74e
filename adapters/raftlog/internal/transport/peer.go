package transport

import "github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"

const (
	// queueFrames and queueBytes are the limits of each queue of a peer.
	queueFrames = 4096
	queueBytes  = 64 << 20
	// batchBytes is the size of the frames that are not urgent after which newer urgent frames are
	// sent.
	batchBytes = 64 << 10
)

// frameQueue is a queue of frames, implemented as a ring that grows.
type frameQueue struct {
	frames [][]byte
	first  int
	count  int
	bytes  int
}

func (l *frameQueue) push(frame []byte) bool {
	if l.count == queueFrames || l.bytes+len(frame) > queueBytes {
		return false
	}
	if l.count == len(l.frames) {
		grown := make([][]byte, max(16, 2*l.count))
		for i := range l.count {
			grown[i] = l.frames[(l.first+i)%len(l.frames)]
		}
		l.frames, l.first = grown, 0
	}
	l.frames[(l.first+l.count)%len(l.frames)] = frame
	l.count++
	l.bytes += len(frame)
	return true
}

func (l *frameQueue) popFrame() []byte {
	frame := l.frames[l.first]
	l.frames[l.first] = nil
	l.first = (l.first + 1) % len(l.frames)
	l.count--
	l.bytes -= len(frame)
	return frame
}

// peer is the state of another peer. Transport.mu guards it.
type peer struct {
	id       string
	addrs    []string // empty if SetPeers does not contain the peer
	dialer   *dialer  // nil if addrs is empty or the transport does not run
	err      error    // the error of the last attempt to connect, or nil
	dialed   *session // the connection to one of addrs, or nil
	accepted *session // the connection that the peer has established, or nil
	// sender is the session that sends frames: the older one of dialed and accepted. It does
	// not change while it exists, so that frames remain in order.
	sender *session
	urgent frameQueue
	normal frameQueue
}

// enqueue adds a frame to a queue, unless it cannot be sent.
func (p *peer) enqueue(urgent bool, frame []byte) bool {
	s := p.sender
	if s == nil || s.draining || len(frame) == 0 || len(frame) > link.MaxFrame {
		return false
	}
	l := &p.normal
	if urgent {
		l = &p.urgent
	}
	if !l.push(frame) {
		return false
	}
	s.wakeUp()
	return true
}

// isOtherProcess reports whether there is a session with another process than that of the claim.
func (p *peer) isOtherProcess(c link.Claim) bool {
	for _, s := range []*session{p.accepted, p.dialed} {
		if s != nil && s.conn.Remote().Claim.Process != c.Process {
			return true
		}
	}
	return false
}

// dropFrames empties the queues. It returns false if they were empty.
func (p *peer) dropFrames() bool {
	waited := p.urgent.count+p.normal.count > 0
	p.urgent, p.normal = frameQueue{}, frameQueue{}
	return waited
}
