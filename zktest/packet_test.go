package zktest_test

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestPacket_SASLTokenIsAnswered checks that the server answers a SASL token with success and a null token, as a
// real server without SASL does.
func TestPacket_SASLTokenIsAnswered(t *testing.T) {
	for name, body := range map[string]string{"token": "\x00\x00\x00\x05token", "empty": "\x00\x00\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nc := dialRaw(t, zktest.Start(t))
				_, err := nc.Write(newSessionHandshake())
				require.NoError(t, err)
				_, err = io.ReadFull(nc, make([]byte, 40))
				require.NoError(t, err)
				_, err = nc.Write(encodePacket(1, 102, body))
				require.NoError(t, err)
				// The reply consists of length, xid, zxid, error, and the length of the token.
				reply := make([]byte, 24)
				_, err = io.ReadFull(nc, reply)
				require.NoError(t, err)
				require.Zero(t, binary.BigEndian.Uint32(reply[16:]))
				require.Equal(t, "\xff\xff\xff\xff", string(reply[20:]))
				_, err = nc.Write(encodePacket(2, zktest.OpExists, "\x00\x00\x00\x01/\x00"))
				require.NoError(t, err)
				_, err = io.ReadFull(nc, reply)
				require.NoError(t, err)
			})
		})
	}
}

// TestPacket_MalformedAffectsNoOtherClient checks that malformed packets of one client have no effect on another
// client.
func TestPacket_MalformedAffectsNoOtherClient(t *testing.T) {
	s := zktest.Start(t)
	c, _ := connect(t, s, 30*time.Second)
	mustCreate(t, c, "/a", "kept", 0)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		nc, err := net.Dial("tcp", s.Addr())
		require.NoError(t, err)
		if i%3 > 0 {
			nc.Write(newSessionHandshake())
			io.ReadFull(nc, make([]byte, 40))
		}
		for range 5 {
			b := make([]byte, 4+r.IntN(200))
			for k := range b {
				b[k] = byte(r.Uint32())
			}
			switch i % 4 {
			case 0: // a packet with a correct length and a random body
				binary.BigEndian.PutUint32(b, uint32(len(b)-4))
			case 1: // the body also begins with a known operation
				binary.BigEndian.PutUint32(b, uint32(len(b)-4))
				if len(b) > 12 {
					binary.BigEndian.PutUint32(b[8:], uint32(1+r.IntN(22)))
				}
			case 2: // the packet has a huge length
				binary.BigEndian.PutUint32(b, 1<<31-1)
			}
			if _, err := nc.Write(b); err != nil {
				break
			}
		}
		nc.Close()
	}
	if data, _, err := c.Get("/a"); string(data) != "kept" || err != nil {
		t.Errorf("another client reads %q, error %v", data, err)
	}
}

// FuzzConnection checks that arbitrary bytes that a client sends after its handshake have no effect on another
// client.
func FuzzConnection(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x0b"))
	f.Add([]byte("\x00\x00\x00\x0f\x00\x00\x00\x01\x00\x00\x00\x03\x00\x00\x00\x02/a\x01"))
	f.Add([]byte("\x00\x00\x00\x1a\x00\x00\x00\x01\x00\x00\x00\x0e\x00\x00\x00\x02\x00\xff\xff\xff\xff\x00\x00\x00\x01/\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x20\x00\x00\x00\x01\x00\x00\x00\x65\x00\x00\x00\x00\x00\x00\x00\x00\x7f\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		synctest.Test(t, func(t *testing.T) {
			s := zktest.Start(t)
			other := newRawClient(t, s, false)
			c := newRawClient(t, s, false)
			c.nc.Write(b)
			synctest.Wait() // wait until the server has processed the bytes
			c.nc.Close()
			other.nc.SetReadDeadline(time.Now().Add(time.Minute))
			other.send(t, encodePing)
			assert.NoError(t, other.discardReply(), "another client")
			_ = s.Tree()
		})
	})
}
