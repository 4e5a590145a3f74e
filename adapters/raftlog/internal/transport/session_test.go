package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

func TestSession_DeliversFramesInOrder(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		a, b := h.startPeer("a", peersOf("a", "b")), h.startPeer("b", peersOf("a", "b"))
		waitIdle()
		for i := range 1000 {
			require.True(t, a.Send("b", i%2 == 0, numberedFrame(i)))
			require.True(t, b.Send("a", i%2 == 0, numberedFrame(i)))
		}
		for _, n := range []*Transport{a, b} {
			next := []int{0, 1} // the numbers of the next urgent frame and of the next other frame
			for range 1000 {
				f := receiveFrame(t, n)
				lane := int(f.Data[len(f.Data)-1]-'0') % 2
				require.Equal(t, string(numberedFrame(next[lane])), string(f.Data))
				next[lane] += 2
			}
		}
		require.Equal(t, link.Hello{Cluster: "c1", ID: "a", Addr: "a:7", Peer: true, Purpose: link.PurposeRaft},
			func() link.Hello { a.Send("b", true, []byte("x")); return receiveFrame(t, b).From }())
		requireNoneUnreachable(t, a)
		requireNoneUnreachable(t, b)
	})
}

// TestSession_SendsUrgentFramesFirst checks that a heartbeat does not wait for 10 MB of queued entries. It
// waits only for the data that was already written to the connection.
func TestSession_SendsUrgentFramesFirst(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		a, b := h.startPeer("a", peersOf("b")), h.startPeer("b", nil)
		waitIdle()
		h.network.Cut("a:7", "b:7")
		const size = 4 << 10
		for range 10 << 20 / size {
			require.True(t, a.Send("b", false, make([]byte, size)))
		}
		waitIdle()
		require.True(t, a.Send("b", true, []byte("heartbeat")))
		h.network.Heal("a:7", "b:7")
		before, total := -1, 0
		for total < 10<<20 {
			f := receiveFrame(t, b)
			if string(f.Data) == "heartbeat" {
				before = total
				continue
			}
			total += len(f.Data)
		}
		require.NotEqual(t, -1, before, "the urgent frame was received last")
		require.Less(t, before, 512<<10)
		t.Logf("%d bytes were received before", before)
	})
}

// TestSession_SendsRepliesToUnknownPeer checks that a peer that is not in SetPeers can connect, and receives
// replies on the connection that it has dialed.
func TestSession_SendsRepliesToUnknownPeer(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		a, b := h.startPeer("a", peersOf("b")), h.startPeer("b", nil)
		waitIdle()
		requireDelivery(t, a, b, "request")
		requireDelivery(t, b, a, "reply")

		a.Close()
		requireUnreachable(t, b, "a")
		require.False(t, b.Send("a", false, []byte("dropped")))
		requireUnreachable(t, b, "a")
		waitIdle()
		require.Empty(t, b.peers, "the peer was not removed")
	})
}

// TestSession_EndOfReplacedSessionKeepsNewPeer checks that a replaced session does not remove the new state
// of its peer if the session ends only after the peer was removed and has connected again. Otherwise frames
// for the peer would be dropped.
func TestSession_EndOfReplacedSessionKeepsNewPeer(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		release := make(chan struct{})
		b := h.startPeer("b", nil, func(c *Config) { c.OnRefused = func(string, *link.RefusedError) { <-release } })
		connect := func() *link.Conn {
			c, err := h.dialAs("a", "b", link.PurposeRaft)
			require.NoError(t, err)
			waitIdle()
			return c
		}
		late := connect()
		defer late.Close()
		// Make the goroutine that serves the connection late block in OnRefused, so that the session of late
		// ends only after release is closed.
		require.NoError(t, late.WriteFrame([]byte{refusalFrame, byte(link.ReasonRunning)}))
		waitIdle()
		require.NoError(t, connect().Close()) // a newer connection of the same peer replaces late
		waitIdle()
		require.Empty(t, b.peers)
		requireUnreachable(t, b, "a")
		current := connect()
		defer current.Close()
		close(release)
		waitIdle()
		require.True(t, b.Send("a", false, []byte("x")))
		requireFrame(t, current, "x")
	})
}

// TestSend_DoesNotBlockIfPeerDoesNotRead checks that a peer that does not read neither blocks Send nor affects
// frames to and from other peers. Frames for that peer are dropped.
func TestSend_DoesNotBlockIfPeerDoesNotRead(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		a, b := h.startPeer("a", peersOf("b", "c")), h.startPeer("b", peersOf("a"))
		c := h.startPeer("c", nil)
		time.Sleep(maxPause)
		frame := make([]byte, 64<<10)
		dropped := 0
		start := time.Now()
		for i := range 2 * queueBytes / len(frame) {
			if i%64 == 0 {
				waitIdle()
			}
			if !a.Send("b", false, frame) {
				dropped++
			}
		}
		require.Positive(t, dropped)
		require.Zero(t, time.Since(start), "Send has blocked")
		requireUnreachable(t, a, "b")
		requireDelivery(t, a, c, "hello")
		requireDelivery(t, b, a, "the other direction works")

		// A write to b that makes no progress ends the connection, but only after writeTimeout.
		require.Zero(t, h.logs["a"].countText("peer ended"))
		time.Sleep(writeTimeout + time.Second)
		require.NotZero(t, h.logs["a"].countText("peer ended"))
		requireUnreachable(t, a, "b")
		// When b reads again, frames for b are sent again.
		go func() {
			for range b.Received() {
			}
		}()
		time.Sleep(2 * time.Second)
		require.True(t, a.Send("b", false, frame))
	})
}

func TestSession_RemovedPeerReceivesQueuedFrames(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		a, b := h.startPeer("a", peersOf("b")), h.startPeer("b", nil)
		waitIdle()
		h.network.Cut("a:7", "b:7")
		for i := range 100 {
			require.True(t, a.Send("b", false, append(numberedFrame(i), make([]byte, 4<<10)...)))
		}
		waitIdle()
		a.SetPeers(nil)
		require.False(t, a.Send("b", false, []byte("too late")))
		h.network.Heal("a:7", "b:7")
		for i := range 100 {
			require.Contains(t, string(receiveFrame(t, b).Data), string(numberedFrame(i)))
		}
		waitIdle()
		require.Empty(t, a.peers)
		require.Empty(t, b.peers)
		time.Sleep(time.Minute)
		require.Equal(t, 1, h.logs["a"].countText("connected to peer"))
	})
}
