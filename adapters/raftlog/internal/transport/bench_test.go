package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkRoundTrip measures the round trip of one frame at a time, for example of a heartbeat and its
// reply.
func BenchmarkRoundTrip(b *testing.B) {
	for _, name := range []string{"plain", "TLS"} {
		b.Run(name, func(b *testing.B) {
			near, far := connectOverTCP(b, modes[name])
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

// BenchmarkStream measures the throughput of frames of which up to 200 are in flight.
func BenchmarkStream(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"300B", 300}, {"64KiB", 64 << 10}} {
		for _, name := range []string{"plain", "TLS"} {
			b.Run(size.name+"/"+name, func(b *testing.B) {
				near, far := connectOverTCP(b, modes[name])
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
