package transport

import "github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"

const (
	// queueFrames and queueBytes limit each of a peer's lanes.
	queueFrames = 4096
	queueBytes  = 64 << 20
	// batchBytes is after how many bytes that are not urgent a writer looks for urgent ones.
	batchBytes = 64 << 10
)

// lane is a queue of frames, a ring that grows.
type lane struct {
	frames [][]byte
	first  int
	count  int
	bytes  int
}

func (l *lane) push(frame []byte) bool {
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

func (l *lane) pop() []byte {
	frame := l.frames[l.first]
	l.frames[l.first] = nil
	l.first = (l.first + 1) % len(l.frames)
	l.count--
	l.bytes -= len(frame)
	return frame
}

// peer is another peer as this one sees it. Transport.mu guards it.
type peer struct {
	id     string
	addr   string  // empty if SetPeers does not name it
	keeper *keeper // of that address, once the transport runs
	out    *session
	in     *session
	sender *session // one of the two
	urgent lane
	normal lane
}

// active is the session that sends: the first there was, as long as it lasts, so that frames
// stay in order.
func (p *peer) active() *session { return p.sender }

func (p *peer) push(urgent bool, frame []byte) bool {
	s := p.active()
	if s == nil || s.leaving || len(frame) == 0 || len(frame) > link.MaxFrame {
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

// otherProcess tells whether there is a session with a process other than the one that claims
// this.
func (p *peer) otherProcess(c link.Claim) bool {
	for _, s := range []*session{p.in, p.out} {
		if s != nil && s.conn.Remote().Claim.Process != c.Process {
			return true
		}
	}
	return false
}

// clear drops what waits, and tells whether anything did.
func (p *peer) clear() bool {
	waited := p.urgent.count+p.normal.count > 0
	p.urgent, p.normal = lane{}, lane{}
	return waited
}
