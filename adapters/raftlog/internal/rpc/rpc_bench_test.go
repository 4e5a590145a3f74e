package rpc_test

// What the calls cost: 256 updates at once over one TCP connection of this machine.

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// framed has the length before each frame.
type framed struct {
	net.Conn
	r   *bufio.Reader
	buf []byte
}

func (f *framed) ReadFrame() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if cap(f.buf) < n {
		f.buf = make([]byte, n)
	}
	f.buf = f.buf[:n]
	_, err := io.ReadFull(f.r, f.buf)
	return f.buf, err
}

func (f *framed) WriteFrame(b []byte) error {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
	buffers := net.Buffers{head, b}
	_, err := buffers.WriteTo(f.Conn)
	return err
}

// instant answers at once.
type instant struct {
	rpc.Service
	index atomic.Uint64
}

func (s *instant) Propose(context.Context, requestid.ID, []byte) (uint64, error) {
	return s.index.Add(1), nil
}

func BenchmarkPropose(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	var server sync.WaitGroup
	server.Go(func() {
		conn, err := l.Accept()
		if err == nil {
			_ = rpc.Serve(context.Background(), &framed{Conn: conn, r: bufio.NewReader(conn)}, &instant{})
		}
	})
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(b, err)
	caller := rpc.NewCaller(&framed{Conn: conn, r: bufio.NewReader(conn)})
	data := make([]byte, 256)
	id := requestid.New()
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var callers sync.WaitGroup
	for range 256 {
		callers.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := caller.Propose(context.Background(), id, data); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	caller.Close()
	server.Wait()
}
