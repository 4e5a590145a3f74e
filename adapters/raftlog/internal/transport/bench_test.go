package transport

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// overTCP makes two peers that are connected over loopback.
func overTCP(tb testing.TB, change func(*link.Identity)) (*Transport, *Transport) {
	tb.Helper()
	var both []*Transport
	var list []api.Peer
	for _, id := range []string{"a", "b"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(tb, err)
		self := link.Identity{Cluster: "c1", ID: id, Peer: true, Addr: l.Addr().String()}
		change(&self)
		list = append(list, api.Peer{ID: id, Addr: self.Addr})
		t := New(Config{Self: self, Listener: l, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}})
		tb.Cleanup(t.Close)
		both = append(both, t)
	}
	for i, t := range both {
		t.SetPeers(list)
		require.NoError(tb, t.Run())
		other := list[1-i].ID
		require.Eventually(tb, func() bool {
			t.mu.Lock()
			defer t.mu.Unlock()
			p := t.peers[other]
			return i == 0 || p != nil && p.sender != nil
		}, 30*time.Second, time.Millisecond)
	}
	require.Eventually(tb, func() bool {
		both[0].mu.Lock()
		defer both[0].mu.Unlock()
		p := both[0].peers["b"]
		return p != nil && p.sender != nil
	}, 30*time.Second, time.Millisecond)
	return both[0], both[1]
}

var ways = map[string]func(*link.Identity){
	"plain": func(i *link.Identity) { i.Insecure = true },
	"TLS":   func(i *link.Identity) { i.Secret = []byte("a secret of more than 16 bytes") },
}

// TestOverTCP is of real sockets and time: large frames, small ones, and a snapshot.
func TestOverTCP(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			a, b := overTCP(t, way)
			for i := range 200 {
				require.True(t, a.Send("b", false, append(numbered(i), make([]byte, i<<8)...)))
			}
			for i := range 200 {
				f := <-b.Received()
				require.Equal(t, string(numbered(i)), string(f.Data[:len(f.Data)-i<<8]))
				require.Equal(t, "a", f.From.ID)
			}
			var refused *link.RefusedError
			require.ErrorAs(t, a.Snapshot(t.Context(), "b", nil, 0, nil), &refused)
			require.Equal(t, link.ReasonPurpose, refused.Reason)
		})
	}
}

// BenchmarkRoundTrip is of one frame at a time: the time of a heartbeat there and back.
func BenchmarkRoundTrip(b *testing.B) {
	for _, name := range []string{"plain", "TLS"} {
		b.Run(name, func(b *testing.B) {
			near, far := overTCP(b, ways[name])
			frame := make([]byte, 300)
			b.ReportAllocs()
			for b.Loop() {
				near.Send("b", true, frame)
				f := <-far.Received()
				far.Send("a", true, f.Data)
				<-near.Received()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "roundtrips/s")
		})
	}
}

// BenchmarkStream has as many frames under way as are received in time.
func BenchmarkStream(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"300B", 300}, {"64KiB", 64 << 10}} {
		for _, name := range []string{"plain", "TLS"} {
			b.Run(size.name+"/"+name, func(b *testing.B) {
				near, far := overTCP(b, ways[name])
				frame := make([]byte, size.bytes)
				const window = 200
				room := make(chan struct{}, window)
				done := make(chan struct{})
				b.SetBytes(int64(size.bytes))
				b.ReportAllocs()
				n := 0
				go func() {
					defer close(done)
					for range far.Received() {
						<-room
					}
				}()
				for b.Loop() {
					room <- struct{}{}
					if near.Send("b", false, frame) {
						n++
					} else {
						<-room
					}
				}
				for len(room) > 0 {
					time.Sleep(time.Millisecond)
				}
				require.Equal(b, b.N, n)
				far.Close()
				<-done
			})
		}
	}
}
