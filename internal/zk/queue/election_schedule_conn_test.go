package queue_test

import (
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// withReportedTimeout returns a dialer whose connections report d as the session timeout that the
// server has granted.
func withReportedTimeout(dial zk.Dialer, d time.Duration) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &handshakeConn{Conn: conn, timeout: d}, nil
	}
}

// handshakeConn changes the session timeout in the reply to the handshake.
type handshakeConn struct {
	net.Conn
	timeout time.Duration
	head    []byte // the part of the reply's beginning that the client has not read yet
	replied bool   // the beginning of the reply was read
}

func (c *handshakeConn) Read(b []byte) (int, error) {
	if !c.replied {
		c.replied = true
		c.head = make([]byte, 12) // length, protocol version, session timeout
		if n, err := io.ReadFull(c.Conn, c.head); err != nil {
			c.head = c.head[:n]
			return 0, err
		}
		if binary.BigEndian.Uint32(c.head[8:]) > 0 { // the session exists
			binary.BigEndian.PutUint32(c.head[8:], uint32(c.timeout.Milliseconds()))
		}
	}
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
