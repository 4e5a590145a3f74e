package leaderelection_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// packetPause is the pause between the packets that a client receives.
type packetPause struct{ d atomic.Int64 }

func (p *packetPause) set(d time.Duration) { p.d.Store(int64(d)) }

// connectSlowly opens a session whose client receives one packet at a time, with a pause before
// each, in which it processes the previous one. So the client reacts to notifications in the order
// in which the server has sent them. The pause is 0 at first.
func (h *harness) connectSlowly() (*zk.Conn, *packetPause) {
	pause := &packetPause{}
	dial := h.ensemble.Dialer()
	return h.connect(zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &packetConn{Conn: conn, pause: pause}, nil
	})), pause
}

// packetConn is a connection that delivers one packet at a time. Only its reader uses the other
// fields.
type packetConn struct {
	net.Conn
	pause *packetPause
	head  []byte // the part of a packet's header that was not read yet
	body  int    // the number of bytes of a packet's body that were not read yet
}

func (c *packetConn) Read(b []byte) (int, error) {
	if len(c.head) == 0 && c.body == 0 {
		time.Sleep(time.Duration(c.pause.d.Load()))
		var head [4]byte
		if _, err := io.ReadFull(c.Conn, head[:]); err != nil {
			return 0, err
		}
		c.head, c.body = head[:], int(binary.BigEndian.Uint32(head[:]))
	}
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	n, err := c.Conn.Read(b[:min(len(b), c.body)])
	c.body -= n
	return n, err
}
