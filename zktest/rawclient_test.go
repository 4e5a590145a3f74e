package zktest_test

import (
	"bufio"
	"encoding/binary"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/wire"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// rawClient is a client with little overhead, for benchmarks of the server and for packets that no
// client library sends.
type rawClient struct {
	nc      net.Conn
	br      *bufio.Reader
	session []byte // the session ID and the password with its length, as a handshake contains them
}

func newRawClient(tb testing.TB, s *zktest.Server, tcp bool) *rawClient {
	tb.Helper()
	return attachRawClient(tb, s, tcp, nil)
}

// attachRawClient connects with an existing session, or with a new session if session is nil.
func attachRawClient(tb testing.TB, s *zktest.Server, tcp bool, session []byte) *rawClient {
	tb.Helper()
	dial, addr := s.Dialer(), s.Name()
	if tcp {
		dial, addr = tcpDialer, s.Addr()
	}
	nc, err := dial("tcp", addr, 0)
	require.NoError(tb, err)
	tb.Cleanup(func() { nc.Close() })
	c := &rawClient{nc: nc, br: bufio.NewReaderSize(nc, 16<<10)}
	hello := newSessionHandshake()
	copy(hello[20:], session)
	_, err = nc.Write(hello)
	require.NoError(tb, err)
	answer, err := c.br.Peek(40)
	require.NoError(tb, err)
	c.session = slices.Clone(answer[12:])
	require.NoError(tb, c.discardReply())
	return c
}

// discardReply reads a packet and discards it.
func (c *rawClient) discardReply() error {
	head, err := c.br.Peek(4)
	if err != nil {
		return err
	}
	_, err = c.br.Discard(4 + int(binary.BigEndian.Uint32(head)))
	return err
}

// sendRequests sends n requests that the function request encodes. Up to window requests are in flight, and
// each write contains as many requests as the server has answered since the previous write.
func (c *rawClient) sendRequests(n, window int, request func(e *wire.Encoder, i int)) error {
	var e wire.Encoder
	for sent, answered := 0, 0; answered < n; {
		e.B = e.B[:0]
		for sent < n && sent-answered < window {
			start := e.Begin()
			request(&e, sent)
			e.End(start)
			sent++
		}
		if len(e.B) > 0 {
			if _, err := c.nc.Write(e.B); err != nil {
				return err
			}
		}
		for first := true; answered < sent && (first || c.br.Buffered() > 0); first = false {
			if err := c.discardReply(); err != nil {
				return err
			}
			answered++
		}
	}
	return nil
}

// send writes the requests together. Each function encodes a request without its xid.
func (c *rawClient) send(t *testing.T, reqs ...func(e *wire.Encoder)) {
	t.Helper()
	var e wire.Encoder
	for i, r := range reqs {
		start := e.Begin()
		e.Int(int32(i + 1))
		r(&e)
		e.End(start)
	}
	_, err := c.nc.Write(e.B)
	require.NoError(t, err)
}

func encodePing(e *wire.Encoder) { e.Int(int32(wire.Ping)) }

func encodeCreate(path string, data []byte) func(*wire.Encoder) {
	return func(e *wire.Encoder) {
		e.Int(int32(wire.Create))
		e.String(path)
		e.Buffer(data)
		e.ACLs([]wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}})
		e.Int(0)
	}
}

// dialRaw returns an in-memory connection without a handshake.
func dialRaw(t *testing.T, s *zktest.Server) net.Conn {
	nc, err := s.Dialer()("", "", 0)
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	return nc
}

// encodePacket returns a request with the given xid, operation and body.
func encodePacket(xid int, op zktest.Op, body string) []byte {
	var e wire.Encoder
	start := e.Begin()
	e.Header(wire.Header{Xid: int32(xid), Op: op})
	e.B = append(e.B, body...)
	e.End(start)
	return e.B
}
