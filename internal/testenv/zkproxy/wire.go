package zkproxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// Operation codes of requests.
const (
	OpAny             int32 = 0 // in a Rule: any request except handshakes and pings
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
	// OpConnect is the handshake that opens or resumes a session. The protocol does not define a
	// code for it.
	OpConnect int32 = -10
)

const (
	lengthSize = 4
	// maxFrame is far above the limits of servers. If a frame is longer, or its length is
	// negative, the proxy closes the connection.
	maxFrame = 64 << 20
	rawChunk = 32 << 10

	xidEvent     int32 = -1
	xidHandshake int32 = 0
)

var errFrameLength = errors.New("zkproxy: invalid length of a frame")

// http2 are the first bytes of an HTTP/2 client, such as that of etcd. The proxy forwards its
// bytes without splitting them into frames.
const http2 = "PRI "

// readHead reads the first four bytes of a client. raw reports whether they are not the length of
// a frame, but a four-letter command or HTTP/2.
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

// readFrame reads a frame including its length. head is the length, or nil if it was not read
// yet.
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
	// The buffer grows with the bytes that arrive: the length may be wrong.
	var buf bytes.Buffer
	buf.Write(head)
	if _, err := io.CopyN(&buf, r, int64(length)); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// readChunk returns head if it is not nil, and otherwise the bytes that are available.
func readChunk(r io.Reader, head []byte) ([]byte, error) {
	if head != nil {
		return head, nil
	}
	chunk := make([]byte, rawChunk)
	n, err := r.Read(chunk)
	if n > 0 {
		return chunk[:n], nil // the next call returns an error again
	}
	return nil, err
}

// message is the decoded part of a frame.
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

// credentials are necessary to resume a session.
type credentials struct {
	timeout  int32 // milliseconds
	password []byte
}

// parseRequest decodes the body of a request. It returns false if the request is malformed, which
// the server will reject.
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
		// The header of the first operation contains its code, whether the list ends here, and
		// an error.
		d.int32()
		if end := d.bool(); !end {
			d.int32()
			m.path = d.string()
		}
	}
	return m, true
}

// parseReply decodes the body of a reply or an event. It returns false if it is malformed.
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

// decoder decodes values one after another. If the input is exhausted, it returns zero values, and
// failed is true.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) readBytes(n int) []byte {
	if d.failed || n < 0 || n > len(d.rest) {
		d.failed = true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) int32() int32 {
	if b := d.readBytes(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if b := d.readBytes(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (d *decoder) bool() bool {
	b := d.readBytes(1)
	return b != nil && b[0] != 0
}

// string decodes a string or a buffer. It returns "" for null, which has the length -1.
func (d *decoder) string() string {
	length := d.int32()
	if length == -1 {
		return ""
	}
	return string(d.readBytes(int(length)))
}
