package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

func TestFramesComeInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.node("a", peers("a", "b")), w.node("b", peers("a", "b"))
		settle()
		for i := range 1000 {
			require.True(t, a.Send("b", i%2 == 0, numbered(i)))
			require.True(t, b.Send("a", i%2 == 0, numbered(i)))
		}
		for _, n := range []*node{a, b} {
			next := []int{0, 1} // urgent, not urgent
			for range 1000 {
				f := n.receive(t)
				lane := int(f.Data[len(f.Data)-1]-'0') % 2
				require.Equal(t, string(numbered(next[lane])), string(f.Data))
				next[lane] += 2
			}
		}
		require.Equal(t, link.Hello{Cluster: "c1", ID: "a", Addr: "a:7", Peer: true, Purpose: link.PurposeRaft},
			func() link.Hello { a.Send("b", true, []byte("x")); return b.receive(t).From }())
		a.requireNoneUnreachable(t)
		b.requireNoneUnreachable(t)
	})
}

// TestUrgentOvertakes: a heartbeat does not wait behind 10 MB of entries, but only for what
// is on its way already.
func TestUrgentOvertakes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.node("a", peers("b")), w.node("b", nil)
		settle()
		w.Cut("a:7", "b:7")
		const size = 4 << 10
		for range 10 << 20 / size {
			require.True(t, a.Send("b", false, make([]byte, size)))
		}
		settle()
		require.True(t, a.Send("b", true, []byte("heartbeat")))
		w.Heal("a:7", "b:7")
		before, total := -1, 0
		for total < 10<<20 {
			f := b.receive(t)
			if string(f.Data) == "heartbeat" {
				before = total
				continue
			}
			total += len(f.Data)
		}
		require.NotEqual(t, -1, before, "it comes last")
		require.Less(t, before, 512<<10)
		t.Logf("%d bytes come before", before)
	})
}

// TestUnknownSender: who is not known here is heard, and gets answers by its connection.
func TestUnknownSender(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.node("a", peers("b")), w.node("b", nil)
		settle()
		require.True(t, a.Send("b", false, []byte("I lead")))
		require.Equal(t, "I lead", string(b.receive(t).Data))
		require.True(t, b.Send("a", false, []byte("so be it")))
		require.Equal(t, "so be it", string(a.receive(t).Data))

		a.Close()
		b.requireUnreachable(t, "a")
		require.False(t, b.Send("a", false, []byte("are you there?")))
		b.requireUnreachable(t, "a")
		settle()
		require.Empty(t, b.peers, "it is forgotten")
	})
}

func TestDroppedIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.node("a", peers("b"))
		settle()
		for range 10 {
			require.False(t, a.Send("b", true, []byte("x")), "nobody is there")
		}
		a.requireUnreachable(t, "b")
		require.False(t, a.Send("z", true, []byte("x")), "never heard of")
		for id := range a.Unreachable() {
			if id == "z" { // b may be there once more
				break
			}
		}
		b := w.node("b", nil)
		time.Sleep(maxPause)
		settle()
		require.True(t, a.Send("b", true, []byte("x")))
		b.receive(t)
		require.False(t, a.Send("b", true, nil), "frames are not empty")
		a.requireUnreachable(t, "b")
		require.False(t, a.Send("b", true, make([]byte, link.MaxFrame+1)))
		a.requireUnreachable(t, "b")
		a.requireNoneUnreachable(t)
	})
}

// TestQueuesAreBounded: by number and by size, each lane by itself.
func TestQueuesAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ size, least, most int }{
		"number": {16, queueFrames, queueFrames + 4*batchBytes/16},
		"bytes":  {1 << 20, queueBytes >> 20, queueBytes>>20 + 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a := w.node("a", peers("b"))
				w.node("b", nil)
				time.Sleep(maxPause)
				w.Cut("a:7", "b:7")
				taken, frame := 0, make([]byte, c.size)
				for range 100_000 {
					settle()
					if !a.Send("b", false, frame) {
						break
					}
					taken++
				}
				require.GreaterOrEqual(t, taken, c.least)
				require.LessOrEqual(t, taken, c.most)
				a.requireUnreachable(t, "b")
				require.True(t, a.Send("b", true, frame), "the other lane has room")
			})
		})
	}
}

// TestReaderThatDoesNotRead makes the sender drop, not wait; and nobody else suffers.
func TestReaderThatDoesNotRead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.node("a", peers("b", "c")), w.node("b", peers("a"))
		c := w.node("c", nil)
		time.Sleep(maxPause)
		frame := make([]byte, 64<<10)
		dropped := 0
		began := time.Now()
		for i := range 2 * queueBytes / len(frame) {
			if i%64 == 0 {
				settle()
			}
			if !a.Send("b", false, frame) {
				dropped++
			}
		}
		require.Positive(t, dropped)
		require.Zero(t, time.Since(began), "nothing waits")
		a.requireUnreachable(t, "b")
		require.True(t, a.Send("c", false, []byte("hello")))
		require.Equal(t, "hello", string(c.receive(t).Data))
		require.True(t, b.Send("a", false, []byte("the other direction works")))
		require.Equal(t, "the other direction works", string(a.receive(t).Data))

		// A write that does not get on for long ends the connection.
		require.Zero(t, a.log.count("peer ended"))
		time.Sleep(stall + time.Second)
		require.NotZero(t, a.log.count("peer ended"))
		a.requireUnreachable(t, "b")
		// And when b reads again, all is well: what comes now is sent now.
		go func() {
			for range b.Received() {
			}
		}()
		time.Sleep(2 * time.Second)
		require.True(t, a.Send("b", false, frame))
	})
}

func TestRemovedPeerGetsWhatWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.node("a", peers("b")), w.node("b", nil)
		settle()
		w.Cut("a:7", "b:7")
		for i := range 100 {
			require.True(t, a.Send("b", false, append(numbered(i), make([]byte, 4<<10)...)))
		}
		settle()
		a.SetPeers(nil)
		require.False(t, a.Send("b", false, []byte("too late")))
		w.Heal("a:7", "b:7")
		for i := range 100 {
			require.Contains(t, string(b.receive(t).Data), string(numbered(i)))
		}
		settle()
		require.Empty(t, a.peers)
		require.Empty(t, b.peers)
		time.Sleep(time.Minute)
		require.Equal(t, 1, a.log.count("connected to peer"))
	})
}

func TestLane(t *testing.T) {
	var l lane
	next, sum := 0, 0
	for i := range 10_000 {
		require.True(t, l.push([]byte{byte(i), byte(i >> 8)}))
		if i%3 != 0 {
			f := l.pop()
			require.Equal(t, []byte{byte(next), byte(next >> 8)}, f)
			next++
		}
		sum = max(sum, l.bytes)
	}
	require.Equal(t, 2*l.count, l.bytes)
	for l.count > 0 {
		l.pop()
		next++
	}
	require.Equal(t, 10_000, next)
	require.Zero(t, l.bytes)
	for _, f := range l.frames {
		require.Nil(t, f, "what was sent is not kept")
	}
}

func TestSendDoesNotAllocate(t *testing.T) {
	p := &peer{}
	p.sender = (&Transport{}).newSession(p, nil)
	frame := make([]byte, 300)
	require.True(t, p.push(false, frame))
	p.normal.pop()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		p.push(false, frame)
		p.normal.pop()
	}))
}
