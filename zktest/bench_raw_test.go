package zktest_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/go-leaderelection/leaderelection/zktest"
	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// rawClient is a client with next to no cost of its own, so that a benchmark
// measures the server. It keeps window requests in flight.
type rawClient struct {
	nc      net.Conn
	br      *bufio.Reader
	session []byte // id, and password with its length, as in a handshake
}

func newRawClient(tb testing.TB, s *zktest.Server, tcp bool) *rawClient {
	tb.Helper()
	return attachRawClient(tb, s, tcp, nil)
}

// attachRawClient connects to a session that there is.
func attachRawClient(tb testing.TB, s *zktest.Server, tcp bool, session []byte) *rawClient {
	tb.Helper()
	dial, addr := s.Dialer(), s.Name()
	if tcp {
		dial, addr = tcpDialer, s.Addr()
	}
	nc, err := dial("tcp", addr, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { nc.Close() })
	c := &rawClient{nc: nc, br: bufio.NewReaderSize(nc, 16<<10)}
	hello := handshake()
	copy(hello[20:], session)
	if _, err := nc.Write(hello); err != nil {
		tb.Fatal(err)
	}
	answer, err := c.br.Peek(40)
	if err != nil {
		tb.Fatal(err)
	}
	c.session = slices.Clone(answer[12:])
	if err := c.reply(); err != nil {
		tb.Fatal(err)
	}
	return c
}

// reply reads one packet and throws it away.
func (c *rawClient) reply() error {
	head, err := c.br.Peek(4)
	if err != nil {
		return err
	}
	_, err = c.br.Discard(4 + int(binary.BigEndian.Uint32(head)))
	return err
}

// run sends n requests that request appends. Each write is of as many as have
// been answered since the last, up to the window.
func (c *rawClient) run(n, window int, request func(e *wire.Encoder, i int)) error {
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
			if err := c.reply(); err != nil {
				return err
			}
			answered++
		}
	}
	return nil
}

// BenchmarkRaw is the server with clients that cost little: 16 of them, one or 16
// requests of each in flight.
func BenchmarkRaw(b *testing.B) {
	read := func(e *wire.Encoder, k, i int) {
		e.Int(int32(i))
		e.Int(int32(wire.GetData))
		e.String(fmt.Sprintf("/c%d", k))
		e.Bool(false)
	}
	create := func(e *wire.Encoder, k, i int) {
		e.Int(int32(i))
		e.Int(int32(wire.Create))
		e.String(fmt.Sprintf("/c%d/n%d", k, i))
		e.Buffer(nil)
		e.ACLs([]wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}})
		e.Int(0)
	}
	for _, kind := range []struct {
		name    string
		request func(e *wire.Encoder, k, i int)
	}{{"get", read}, {"create", create}} {
		for _, transport := range []string{"pipe", "tcp"} {
			for _, window := range []int{1, 16} {
				b.Run(fmt.Sprintf("%s/%s/window=%d", kind.name, transport, window), func(b *testing.B) {
					benchRaw(b, transport == "tcp", window, kind.request)
				})
			}
		}
	}
}

func benchRaw(b *testing.B, tcp bool, window int, request func(e *wire.Encoder, k, i int)) {
	const clients = 16
	s := zktest.Start(b)
	all := make([]*rawClient, clients)
	for k := range all {
		all[k] = newRawClient(b, s, tcp)
		err := all[k].run(1, 1, func(e *wire.Encoder, _ int) {
			e.Int(0)
			e.Int(int32(wire.Create))
			e.String(fmt.Sprintf("/c%d", k))
			e.Buffer([]byte("0123456789"))
			e.ACLs([]wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}})
			e.Int(0)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for k, c := range all {
		wg.Go(func() {
			n := b.N/clients + 1
			if err := c.run(n, window, func(e *wire.Encoder, i int) { request(e, k, i) }); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}
