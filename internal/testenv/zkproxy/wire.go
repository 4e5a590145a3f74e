package zkproxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// OpAny, in a Rule, matches any request except handshakes and pings. Package zktest defines the other operations.
const OpAny wire.Op = 0

const (
	lengthSize = 4
	// maxFrame is far greater than the longest request or reply with the default settings of servers. The proxy
	// closes the connection if the length of a frame is greater than maxFrame or negative.
	maxFrame = 64 << 20
	rawChunk = 32 << 10
)

var errFrameLength = errors.New("zkproxy: invalid length of a frame")

// http2 contains the first bytes of each HTTP/2 connection, such as the connections of etcd clients. The proxy
// forwards the bytes of such a connection without splitting them into frames.
const http2 = "PRI "

// readHead reads the first four bytes that a client has sent. raw is true if these bytes are not the length of a
// frame, but a four-letter command or the beginning of HTTP/2.
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

// readFrame reads one frame, including its length. head contains the length if the caller has read it, and is nil
// otherwise.
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
	// The length may be wrong, so the buffer grows only with the bytes that arrive.
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
		return chunk[:n], nil // the next call returns the error
	}
	return nil, err
}

// message contains the decoded fields of a request, a reply or an event.
type message struct {
	xid     int32 // the number of the request; 0 for a handshake
	op      wire.Op
	path    string
	session int64
	zxid    int64
	err     int32

	event     bool
	eventType int32

	credentials credentials
}

// credentials contain what a client needs to resume a session.
type credentials struct {
	timeout  int32 // the session timeout in milliseconds
	password []byte
}

// parseRequest decodes the body of a request. It returns false if the body is malformed, so that the server will
// reject the request.
func parseRequest(body []byte, handshake bool) (message, bool) {
	d := wire.NewDecoder(body)
	if handshake {
		r := d.ReadConnectRequest()
		return message{op: wire.Connect, zxid: r.LastZxidSeen, session: r.Session}, d.Err() == nil
	}
	h := d.ReadHeader()
	if d.Err() != nil {
		return message{}, false
	}
	r, _ := d.ReadRequest(h) // also forward a request with a malformed body, because a server answers it
	m := message{xid: h.Xid, op: h.Op, path: r.Path}
	if len(r.Ops) > 0 {
		m.path = r.Ops[0].Path
	}
	return m, true
}

// parseReply decodes the body of a reply or an event. It returns false if the body is malformed.
func parseReply(body []byte, handshake bool) (message, bool) {
	d := wire.NewDecoder(body)
	if handshake {
		r := d.ReadConnectReply()
		m := message{op: wire.Connect, session: r.Session, credentials: credentials{r.Timeout, r.Password}}
		return m, d.Err() == nil
	}
	h := d.ReadReplyHeader()
	m := message{xid: h.Xid, zxid: h.Zxid, err: h.Code}
	if h.Xid == wire.EventXid {
		ev := d.ReadWatchEvent()
		m.event, m.eventType, m.path = true, ev.Type, ev.Path
	}
	return m, d.Err() == nil
}
