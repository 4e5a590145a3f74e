package zkproxy

// The part of ZooKeeper's wire protocol that the proxy has to understand.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// Operation codes of requests.
const (
	OpAny             int32 = 0 // in a Rule: any request but the handshake and pings
	OpCreate          int32 = 1
	OpDelete          int32 = 2
	OpExists          int32 = 3
	OpGetData         int32 = 4
	OpSetData         int32 = 5
	OpGetACL          int32 = 6
	OpSetACL          int32 = 7
	OpGetChildren     int32 = 8
	OpSync            int32 = 9
	OpPing            int32 = 11
	OpGetChildren2    int32 = 12
	OpCheck           int32 = 13
	OpMulti           int32 = 14
	OpCreate2         int32 = 15
	OpReconfig        int32 = 16
	OpCheckWatches    int32 = 17
	OpRemoveWatches   int32 = 18
	OpCreateContainer int32 = 19
	OpDeleteContainer int32 = 20
	OpCreateTTL       int32 = 21
	OpMultiRead       int32 = 22
	OpSetAuth         int32 = 100
	OpSetWatches      int32 = 101
	OpGetEphemerals   int32 = 103
	OpCountChildren   int32 = 104
	OpSetWatches2     int32 = 105
	OpAddWatch        int32 = 106
	OpCloseSession    int32 = -11
	// OpConnect stands for the handshake that opens or resumes a session. It
	// has no code on the wire.
	OpConnect int32 = -10
)

const (
	lengthSize = 4
	// maxFrame is far above what servers take or give. Longer frames end the
	// connection, as do lengths below zero.
	maxFrame = 64 << 20
	rawChunk = 32 << 10

	xidEvent     int32 = -1
	xidHandshake int32 = 0
)

var errFrameLength = errors.New("zkproxy: impossible length of a frame")

// http2 is how a client of HTTP/2 begins, which has frames of its own: etcd's, which can be cut
// off and delayed as well.
const http2 = "PRI "

// readHead reads the first four bytes from a client: the length of a frame, or
// a four-letter command or HTTP/2, after which nothing has frames.
func readHead(r io.Reader) (head []byte, raw bool, err error) {
	head = make([]byte, lengthSize)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, false, err
	}
	if string(head) == http2 {
		return head, true, nil
	}
	for _, b := range head {
		if b < 'a' || b > 'z' {
			return head, false, nil
		}
	}
	return head, true, nil
}

// readFrame reads a frame, length included. head is the length if it was read
// already, else nil.
func readFrame(r io.Reader, head []byte) ([]byte, error) {
	if head == nil {
		head = make([]byte, lengthSize)
		if _, err := io.ReadFull(r, head); err != nil {
			return nil, err
		}
	}
	length := int32(binary.BigEndian.Uint32(head))
	if length < 0 || length > maxFrame {
		return nil, errFrameLength
	}
	// The buffer grows with what arrives, not with what the length promises.
	var buf bytes.Buffer
	buf.Write(head)
	if _, err := io.CopyN(&buf, r, int64(length)); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// readChunk reads what there is, after head.
func readChunk(r io.Reader, head []byte) ([]byte, error) {
	if head != nil {
		return head, nil
	}
	chunk := make([]byte, rawChunk)
	n, err := r.Read(chunk)
	if n > 0 {
		return chunk[:n], nil // an error comes again
	}
	return nil, err
}

// message is what the proxy reads out of a frame.
type message struct {
	xid     int32
	op      int32
	path    string
	session int64
	zxid    int64
	err     int32

	event     bool
	eventType int32

	credentials credentials
}

// credentials are what it takes to resume a session.
type credentials struct {
	timeout  int32 // milliseconds
	password []byte
}

// parseRequest reads the body of a frame from a client. What it cannot make
// sense of it leaves to the server.
func parseRequest(body []byte, handshake bool) (message, bool) {
	d := decoder{rest: body}
	if handshake {
		d.int32() // protocol version
		m := message{op: OpConnect, xid: xidHandshake, zxid: d.int64()}
		d.int32() // timeout
		m.session = d.int64()
		return m, !d.failed
	}
	m := message{xid: d.int32(), op: d.int32()}
	if d.failed {
		return m, false
	}
	switch m.op {
	case OpCreate, OpDelete, OpExists, OpGetData, OpSetData, OpGetACL, OpSetACL,
		OpGetChildren, OpSync, OpGetChildren2, OpCheck, OpCreate2, OpCheckWatches,
		OpRemoveWatches, OpCreateContainer, OpDeleteContainer, OpCreateTTL,
		OpGetEphemerals, OpCountChildren, OpAddWatch:
		m.path = d.string()
	case OpMulti, OpMultiRead:
		// The header of the first operation: its code, whether the list ends
		// here, and an error.
		d.int32()
		if end := d.bool(); !end {
			d.int32()
			m.path = d.string()
		}
	}
	return m, true
}

// parseReply reads the body of a frame from a server.
func parseReply(body []byte, handshake bool) (message, bool) {
	d := decoder{rest: body}
	if handshake {
		d.int32() // protocol version
		m := message{op: OpConnect, xid: xidHandshake}
		m.credentials.timeout = d.int32()
		m.session = d.int64()
		m.credentials.password = []byte(d.string())
		return m, !d.failed
	}
	m := message{xid: d.int32(), zxid: d.int64(), err: d.int32()}
	if m.xid == xidEvent {
		m.event = true
		m.eventType = d.int32()
		d.int32() // state
		m.path = d.string()
	}
	return m, !d.failed
}

// decoder reads values one after another. After the end of its input it gives
// zeros and has failed.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) take(n int) []byte {
	if d.failed || n < 0 || n > len(d.rest) {
		d.failed = true
		return nil
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *decoder) int32() int32 {
	if b := d.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if b := d.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (d *decoder) bool() bool {
	b := d.take(1)
	return b != nil && b[0] != 0
}

// string reads a string or a buffer; a length of -1 means there is none.
func (d *decoder) string() string {
	length := d.int32()
	if length == -1 {
		return ""
	}
	return string(d.take(int(length)))
}
