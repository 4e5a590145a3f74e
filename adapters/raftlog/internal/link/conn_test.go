package link

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

func TestConn_TransfersFramesOfAllSizes(t *testing.T) {
	for name, identity := range map[string]func(string) Identity{"secret": secretIdentity, "insecure": insecureIdentity} {
		t.Run(name, func(t *testing.T) {
			d, a := connectPair(t, tcpPair, identity("a"), identity("b"))
			sizes := []int{0, 1, maxHandshakeFrame + 1, writeBufferSize - 4, writeBufferSize, firstAllocation, firstAllocation + 1, 5*firstAllocation + 3}
			if identity("a").Insecure {
				sizes = append(sizes, MaxFrame)
			}
			written := make(chan error, 1)
			go func() {
				big := bytes.Repeat([]byte("0123456789abcde"), MaxFrame/15+1)
				for _, n := range sizes {
					if err := d.WriteFrame(big[:n]); err != nil {
						written <- err
						return
					}
				}
				written <- nil
			}()
			for _, n := range sizes {
				frame, err := a.ReadFrame()
				require.NoError(t, err)
				require.Len(t, frame, n)
				if n > 0 {
					require.Equal(t, "0123456789abcde"[(n-1)%15], frame[n-1])
				}
			}
			require.NoError(t, <-written)
		})
	}
}

// TestConn_EnforcesFrameLimits checks that a connection reserves memory for each large frame, remains usable
// after it has skipped a frame, and fails if a frame does not arrive in time.
func TestConn_EnforcesFrameLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a := connectPair(t, memoryPair, insecureIdentity("a"), insecureIdentity("b"))
		busy := errors.New("no memory")
		var reserved []int
		a.LimitFrames(FrameLimits{Max: 1 << 20, Stall: 5 * time.Second, Free: 8 << 10, Reserve: func(size int) error {
			if reserved = append(reserved, size); size > 500_000 {
				return busy
			}
			return nil
		}})
		for _, size := range []int{0, 1, 8 << 10, 8<<10 + 1, 500_000, 500_001, 1 << 20, 3} {
			frame := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
			go func() { _ = d.WriteFrame(frame) }()
			got, err := a.ReadFrame()
			if size > 500_000 {
				require.ErrorIs(t, err, busy)
				require.Equal(t, frame[:skippedHead], got)
				continue
			}
			require.NoError(t, err)
			require.True(t, bytes.Equal(frame, got))
			time.Sleep(time.Minute) // the time limit of a frame does not apply to an idle connection
		}
		require.Equal(t, []int{8<<10 + 1, 500_000, 500_001, 1 << 20}, reserved)
		// Each part of a frame must arrive completely within the limit: a single byte does not extend
		// the time.
		start, done := time.Now(), make(chan struct{})
		go func() {
			defer close(done)
			_, _ = d.raw.Write([]byte{0, 0, 32, 0})
			for range 100 {
				time.Sleep(time.Second)
				if _, err := d.raw.Write(make([]byte, 100)); err != nil {
					return
				}
			}
		}()
		got, err := a.ReadFrame()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Nil(t, got)
		require.Equal(t, 5*time.Second, time.Since(start))
		a.Close()
		d.Close()
		<-done
	})
}

func TestConn_RejectsTooLargeFrame(t *testing.T) {
	d, a := connectPair(t, memoryPair, insecureIdentity("a"), insecureIdentity("b"))
	err := d.WriteFrame(make([]byte, MaxFrame+1))
	require.ErrorIs(t, err, api.ErrTooLarge)
	require.NoError(t, d.WriteFrame([]byte("after the rejected frame")))
	requireFrame(t, a, "after the rejected frame")

	_, err = d.raw.Write([]byte{4, 0, 0, 1}) // the header announces a frame of 64 MiB and one byte
	require.NoError(t, err)
	d.raw.Close()
	_, err = a.ReadFrame()
	require.ErrorIs(t, err, ErrFrameTooLarge)
}

// TestConn_AllocatesMemoryAsDataArrives checks that ReadFrame does not allocate the memory for a whole
// frame when only the frame's length has arrived.
func TestConn_AllocatesMemoryAsDataArrives(t *testing.T) {
	d, a := connectPair(t, memoryPair, insecureIdentity("a"), insecureIdentity("b"))
	_, err := d.raw.Write([]byte{4, 0, 0, 0, 'x'})
	require.NoError(t, err)
	d.raw.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = a.ReadFrame()
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*firstAllocation))
}

func TestConn_WritesBufferOnFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recording := &recordingConn{}
		d, a := connectPair(t, recording.connPair, insecureIdentity("a"), insecureIdentity("b"))
		before := recording.written.Len()
		for range 10 {
			require.NoError(t, d.Buffer([]byte("frame")))
		}
		require.Equal(t, before, recording.written.Len(), "a buffered frame was written")
		require.NoError(t, d.Flush())
		for range 10 {
			requireFrame(t, a, "frame")
		}
		require.NoError(t, d.Buffer([]byte("first")))
		require.NoError(t, d.WriteFrame([]byte("second")))
		for _, want := range []string{"first", "second"} {
			requireFrame(t, a, want)
		}
	})
}

func TestConn_CloseUnblocksReadsAndWrites(t *testing.T) {
	for name, identity := range map[string]func(string) Identity{"secret": secretIdentity, "insecure": insecureIdentity} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a := connectPair(t, memoryPair, identity("a"), identity("b"))
				errs := make(chan error, 2)
				go func() {
					_, err := d.ReadFrame()
					errs <- err
				}()
				go func() { errs <- d.WriteFrame(make([]byte, 1<<20)) }() // blocks, because the other side does not read
				synctest.Wait()
				start := time.Now()
				require.NoError(t, d.Close())
				require.Error(t, <-errs)
				require.Error(t, <-errs)
				require.Zero(t, time.Since(start))
				require.Error(t, d.WriteFrame(nil))
				_, err := a.ReadFrame()
				for err == nil {
					_, err = a.ReadFrame()
				}
				require.Error(t, d.Close())
			})
		})
	}
}

// TestConn_TimeoutsEndStalledReads checks that a read or a write without progress fails after its timeout,
// and that a read does not fail while frames arrive within its timeout.
func TestConn_TimeoutsEndStalledReads(t *testing.T) {
	for name, identity := range map[string]func(string) Identity{"secret": secretIdentity, "insecure": insecureIdentity} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a := connectPair(t, memoryPair, identity("a"), identity("b"))
				d.SetTimeouts(3*time.Second, 2*time.Second)
				go func() {
					for range 5 {
						time.Sleep(2 * time.Second)
						if a.WriteFrame([]byte("x")) != nil {
							return
						}
					}
				}()
				start := time.Now()
				for range 5 {
					_, err := d.ReadFrame()
					require.NoError(t, err)
				}
				require.Equal(t, 10*time.Second, time.Since(start))
				_, err := d.ReadFrame()
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.Equal(t, 13*time.Second, time.Since(start))

				start = time.Now()
				err = d.WriteFrame(make([]byte, 4*maxWrite))
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.Equal(t, 2*time.Second, time.Since(start))
			})
		})
	}
}

// TestConn_SlowFrameDoesNotTimeOut checks that a connection receives a large frame that makes progress,
// although the whole frame takes longer than the timeouts.
func TestConn_SlowFrameDoesNotTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a := connectPair(t, memoryPair, insecureIdentity("a"), insecureIdentity("b"))
		d.SetTimeouts(time.Second, time.Second)
		done := make(chan error, 1)
		go func() { done <- d.WriteFrame(make([]byte, 8*maxWrite)) }()
		start := time.Now()
		for range 8 * maxWrite / (64 << 10) {
			time.Sleep(200 * time.Millisecond)
			_, err := io.ReadFull(a.reader, make([]byte, 64<<10))
			require.NoError(t, err)
		}
		require.NoError(t, <-done)
		require.Greater(t, time.Since(start), 5*time.Second)
	})
}

// discardingConn discards everything that is written to it.
type discardingConn struct{ net.Conn }

func (discardingConn) Write(p []byte) (int, error) { return len(p), nil }

func TestConn_WriteFrameDoesNotAllocate(t *testing.T) {
	c := newConn(nil, discardingConn{})
	frame := make([]byte, 300)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := c.WriteFrame(frame); err != nil {
			panic(err)
		}
	}))
}

// FuzzReadFrame reads frames from arbitrary bytes. The frames must be parts of these bytes, and memory
// for a frame is allocated only as its bytes arrive.
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 7, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0x10, 0, 1, 2})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &Conn{limits: FrameLimits{Max: MaxFrame}, reader: bufio.NewReader(bytes.NewReader(data))}
		for rest := data; ; {
			frame, err := c.ReadFrame()
			if err != nil {
				return
			}
			require.Equal(t, frame, rest[4:4+len(frame)])
			require.LessOrEqual(t, cap(frame), firstAllocation+2*len(frame))
			rest = rest[4+len(frame):]
		}
	})
}
