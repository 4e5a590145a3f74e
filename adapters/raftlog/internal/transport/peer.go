package transport

import "github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"

const (
	// queueFrames and queueBytes are the maximum number and size of the frames in each queue of a peer.
	queueFrames = 4096
	queueBytes  = 64 << 20
	// batchBytes is the size at which a batch takes no more frames that are not urgent, so that newer urgent
	// frames can be sent before the rest of the queue.
	batchBytes = 64 << 10
)

// frameQueue is a queue of frames, implemented as a ring buffer that grows.
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

// peer is what this transport knows about another peer. Transport.mu guards it.
type peer struct {
	id       string
	addrs    []string // the addresses in SetPeers; empty if SetPeers does not contain the peer
	dialer   *dialer  // nil if addrs is empty or the transport does not run
	err      error    // the error of the last attempt to connect, or nil
	dialed   *session // the session on the connection that this process has dialed, or nil
	accepted *session // the session on the connection that the other peer has dialed, or nil
	// sender is the session on which frames are sent: the older one of dialed and accepted. It remains the
	// same until that session ends, so that frames remain in order.
	sender *session
	urgent frameQueue
	normal frameQueue
}

// enqueue adds a frame to one of the queues. It returns false if the frame cannot be sent or the queue
// is full.
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

// isOtherProcess reports whether p has a session with a process other than the one with the claim c.
func (p *peer) isOtherProcess(c link.Claim) bool {
	for _, s := range []*session{p.accepted, p.dialed} {
		if s != nil && s.conn.Remote().Claim.Process != c.Process {
			return true
		}
	}
	return false
}

// dropFrames empties the queues of a peer, and reports whether they contained frames.
func (p *peer) dropFrames() bool {
	waited := p.urgent.count+p.normal.count > 0
	p.urgent, p.normal = frameQueue{}, frameQueue{}
	return waited
}
