package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

func TestFrameQueue_ReturnsFramesInOrder(t *testing.T) {
	var l frameQueue
	next, sum := 0, 0
	for i := range 10_000 {
		require.True(t, l.push([]byte{byte(i), byte(i >> 8)}))
		if i%3 != 0 {
			f := l.popFrame()
			require.Equal(t, []byte{byte(next), byte(next >> 8)}, f)
			next++
		}
		sum = max(sum, l.bytes)
	}
	require.Equal(t, 2*l.count, l.bytes)
	for l.count > 0 {
		l.popFrame()
		next++
	}
	require.Equal(t, 10_000, next)
	require.Zero(t, l.bytes)
	for _, f := range l.frames {
		require.Nil(t, f, "a frame that was removed is referenced")
	}
}

func TestPeer_EnqueueDoesNotAllocate(t *testing.T) {
	p := &peer{}
	p.sender = (&Transport{}).newSession(p, nil)
	frame := make([]byte, 300)
	require.True(t, p.enqueue(false, frame))
	p.normal.popFrame()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		p.enqueue(false, frame)
		p.normal.popFrame()
	}))
}

// TestPeer_QueuesAreLimited checks that the number and the total size of the frames in a queue are
// limited.
func TestPeer_QueuesAreLimited(t *testing.T) {
	for name, c := range map[string]struct{ size, least, most int }{
		"number": {16, queueFrames, queueFrames + 4*batchBytes/16},
		"bytes":  {1 << 20, queueBytes >> 20, queueBytes>>20 + 2},
	} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(t *testing.T, h *harness) {
				a := h.startPeer("a", peersOf("b"))
				h.startPeer("b", nil)
				time.Sleep(maxPause)
				h.network.Cut("a:7", "b:7")
				accepted, frame := 0, make([]byte, c.size)
				for range 100_000 {
					waitIdle()
					if !a.Send("b", false, frame) {
						break
					}
					accepted++
				}
				require.GreaterOrEqual(t, accepted, c.least)
				require.LessOrEqual(t, accepted, c.most)
				requireUnreachable(t, a, "b")
				require.True(t, a.Send("b", true, frame), "the queue of urgent frames is full")
			})
		})
	}
}

func TestSend_ReportsPeerAfterDroppedFrame(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		a := h.startPeer("a", peersOf("b"))
		waitIdle()
		for range 10 {
			require.False(t, a.Send("b", true, []byte("x")), "the peer does not exist")
		}
		requireUnreachable(t, a, "b")
		require.False(t, a.Send("z", true, []byte("x")), "the peer is unknown")
		for id := range a.Unreachable() {
			if id == "z" { // ignore further reports about b
				break
			}
		}
		b := h.startPeer("b", nil)
		time.Sleep(maxPause)
		waitIdle()
		require.True(t, a.Send("b", true, []byte("x")))
		receiveFrame(t, b)
		require.False(t, a.Send("b", true, nil), "an empty frame was sent")
		requireUnreachable(t, a, "b")
		require.False(t, a.Send("b", true, make([]byte, link.MaxFrame+1)))
		requireUnreachable(t, a, "b")
		requireNoneUnreachable(t, a)
	})
}
