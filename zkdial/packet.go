package zkdial

import (
	"encoding/binary"
	"errors"
	"io"
	"time"
)

// requestHead and answerHead are the lengths of the fixed parts of the two packets of a handshake. Both
// packets begin with their length and the version of the protocol, four bytes each. A request continues
// with the number of the last transaction that the client has seen (8 bytes), the requested session
// timeout in milliseconds (4) and the session (8). An answer continues with the granted timeout (4) and
// the session (8).
const (
	requestHead = 28
	answerHead  = 20
	// shortestAnswer and maxAnswer limit the length that an answer states at its beginning. The
	// shortest contains at least the granted timeout, the session, and the length of a password; the
	// longest is far more than any server sends.
	shortestAnswer = answerHead
	maxAnswer      = 1 << 10
)

// errNotZooKeeper is the failure of a connection to a server whose answer does not follow the protocol of
// ZooKeeper.
var errNotZooKeeper = errors.New("the answer is not that of a ZooKeeper server: check the port, and whether it requires TLS")

// The following operations identify the packets that the dialer recognizes. Packets after the handshake
// begin with their length, an ID and the operation, four bytes each.
const (
	opAuth         = 100
	opCloseSession = -11
)

// packetOp returns the operation of a packet of a client after the handshake, or 0 if it has none.
func packetOp(packet []byte) int32 {
	if len(packet) < 12 {
		return 0
	}
	return int32(binary.BigEndian.Uint32(packet[8:]))
}

// connectRequest is the first packet that a client sends: the request for a session.
type connectRequest []byte

// session is the session that the client wants to continue, or 0.
func (r connectRequest) session() int64 {
	if len(r) < requestHead {
		return 0
	}
	return int64(binary.BigEndian.Uint64(r[20:]))
}

// lastSeen is the number of the last transaction that the client has seen. Servers
// that have not seen it themselves close the connection without an answer.
func (r connectRequest) lastSeen() int64 {
	if len(r) < requestHead {
		return 0
	}
	return int64(binary.BigEndian.Uint64(r[8:]))
}

// withoutLastSeen returns a copy of r that claims that the client has seen no transaction. Every server that
// serves requests accepts it.
func (r connectRequest) withoutLastSeen() connectRequest {
	other := append(connectRequest(nil), r...)
	clear(other[8:16])
	return other
}

// connectReply is the reply of a server to a connectRequest, or the first bytes of the reply.
type connectReply []byte

// missingBytes returns how many bytes are missing until timeout and session may be called.
func (a connectReply) missingBytes() int { return max(answerHead-len(a), 0) }

// valid reports whether the length at the beginning of the answer is one that a ZooKeeper
// server sends. It returns true if the length was not read yet.
func (a connectReply) valid() bool {
	n := a.length()
	return len(a) < 4 || n >= shortestAnswer && n <= maxAnswer
}

// length returns the length at the beginning of the answer, or 0 if it was not read.
func (a connectReply) length() uint32 {
	if len(a) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(a)
}

// timeout returns the session timeout that the server has granted.
func (a connectReply) timeout() time.Duration {
	return time.Duration(int32(binary.BigEndian.Uint32(a[8:]))) * time.Millisecond
}

// session returns the ID of the client's session, or 0 if the session that the client wanted to
// continue is over.
func (a connectReply) session() int64 { return int64(binary.BigEndian.Uint64(a[12:])) }

// readConnectReply reads a whole answer.
func readConnectReply(r io.Reader) (connectReply, error) {
	a := make(connectReply, 4, 64)
	if _, err := io.ReadFull(r, a); err != nil {
		return nil, err
	}
	if !a.valid() {
		return nil, errNotZooKeeper
	}
	a = append(a, make([]byte, a.length())...)
	if _, err := io.ReadFull(r, a[4:]); err != nil {
		return nil, err
	}
	return a, nil
}
