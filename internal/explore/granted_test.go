package explore

import (
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// promises returns a dialer whose connections make the client believe that its server has
// granted a session timeout of d.
func promises(dial zk.Dialer, d time.Duration) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &promise{Conn: conn, timeout: d}, nil
	}
}

type promise struct {
	net.Conn
	timeout time.Duration
	head    []byte // of the answer to the handshake, as far as the client has not read it
	begun   bool
}

func (p *promise) Read(b []byte) (int, error) {
	if !p.begun {
		p.begun = true
		p.head = make([]byte, 12) // length, protocol version, session timeout
		if n, err := io.ReadFull(p.Conn, p.head); err != nil {
			p.head = p.head[:n]
			return 0, err
		}
		if binary.BigEndian.Uint32(p.head[8:]) > 0 { // the session lives
			binary.BigEndian.PutUint32(p.head[8:], uint32(p.timeout.Milliseconds()))
		}
	}
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}
