package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// TestReconnectsAfterCut: nobody tells that a cable was pulled.
func TestReconnectsAfterCut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.node("a", peers("b")), w.node("b", peers("a"))
		time.Sleep(maxPause)
		w.CutBoth("a:7", "b:7")
		require.True(t, a.Send("b", false, []byte("lost, or late")))
		time.Sleep(silence + pulse)
		a.requireUnreachable(t, "b")
		b.requireUnreachable(t, "a")
		require.False(t, a.Send("b", false, []byte("nobody is there")))
		a.requireUnreachable(t, "b")
		time.Sleep(time.Minute)

		w.HealBoth("a:7", "b:7")
		time.Sleep(maxPause)
		require.True(t, a.Send("b", false, []byte("again")))
		require.Equal(t, "again", string(b.receive(t).Data))
		require.True(t, b.Send("a", false, []byte("back")))
		require.Equal(t, "back", string(a.receive(t).Data))
	})
}

func TestReconnectsAfterReset(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.node("a", peers("b")), w.node("b", nil)
		settle()
		w.Reset("a:7", "b:7")
		a.requireUnreachable(t, "b")
		time.Sleep(minPause)
		settle()
		require.True(t, a.Send("b", false, []byte("again")))
		require.Equal(t, "again", string(b.receive(t).Data))
	})
}

// TestBySecret is TestFramesComeInOrder with all that belongs to it, in fake time too.
func TestBySecret(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		known := func(secret string) func(*Config) {
			return func(c *Config) { c.Self.Insecure, c.Self.Secret = false, []byte(secret) }
		}
		a, b := w.node("a", peers("b", "c"), known("s1")), w.node("b", peers("a"), known("s1"))
		c := w.node("c", peers("a"), known("s2"))
		time.Sleep(2 * maxPause)
		settle()
		require.True(t, a.Send("b", false, []byte("there")))
		require.Equal(t, "there", string(b.receive(t).Data))
		require.False(t, a.Send("c", false, []byte("x")))
		require.False(t, c.Send("a", false, []byte("x")))
		require.Equal(t, 1, c.log.count("cannot connect to peer"))
		require.NotZero(t, c.log.count("the secret differs"))
	})
}

func TestIdleConnectionsStay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.node("a", peers("b")), w.node("b", peers("a"))
		time.Sleep(10 * time.Minute)
		require.LessOrEqual(t, a.log.count("connected to peer"), 1)
		require.LessOrEqual(t, b.log.count("connected to peer"), 1)
		a.requireNoneUnreachable(t)
	})
}

func TestPauses(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var times []time.Time
		var refuse bool
		last := time.Now()
		a := w.node("a", nil, func(c *Config) {
			dial := c.Dial
			c.Dial = func(ctx context.Context, to string) (net.Conn, error) {
				mu.Lock()
				times = append(times, time.Now())
				refused := refuse
				mu.Unlock()
				if refused {
					return nil, errors.New("no")
				}
				return dial(ctx, to)
			}
		})
		gaps := func() (list []time.Duration) {
			settle()
			mu.Lock()
			defer mu.Unlock()
			for _, t := range times {
				list = append(list, t.Sub(last))
				last = t
			}
			times = nil
			return list
		}
		a.SetPeers(peers("b"))
		time.Sleep(4 * time.Second)
		const ms = time.Millisecond
		want := []time.Duration{0, 37_500 * time.Microsecond, 75 * ms, 150 * ms, 300 * ms, 600 * ms, 750 * ms, 750 * ms, 750 * ms}
		require.Equal(t, want, gaps())
		require.Equal(t, 1, a.log.count("cannot connect to peer"), "once for the same error")

		// After a success they begin anew.
		w.node("b", nil)
		time.Sleep(time.Second)
		require.Len(t, gaps(), 1)
		mu.Lock()
		refuse = true
		mu.Unlock()
		last = time.Now()
		w.Reset("a:7", "b:7")
		time.Sleep(400 * ms)
		require.Equal(t, []time.Duration{37_500 * time.Microsecond, 37_500 * time.Microsecond, 75 * ms, 150 * ms}, gaps())

		// A new address, or the peer itself, ends a pause.
		time.Sleep(time.Minute)
		gaps()
		last = time.Now()
		a.SetPeers([]api.Peer{{ID: "b", Addr: "elsewhere:7"}})
		require.Equal(t, []time.Duration{0}, gaps())
		time.Sleep(10 * time.Second)
		gaps()
		time.Sleep(100 * ms)
		gaps()
		last = time.Now()
		c, err := w.stranger("b", "a", link.PurposeRaft)
		require.NoError(t, err)
		defer c.Close()
		require.Equal(t, []time.Duration{0}, gaps())
		// The same peers again change nothing.
		a.SetPeers([]api.Peer{{ID: "b", Addr: "elsewhere:7"}})
		require.Empty(t, gaps())
	})
}

func TestPeerMoves(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.node("a", peers("b")), w.node("b", nil)
		settle()
		b.Close()
		l, err := w.Listen("elsewhere:7")
		require.NoError(t, err)
		b2 := w.node("b", nil, func(c *Config) { c.Listener.Close(); c.Listener = l })
		a.SetPeers([]api.Peer{{ID: "b", Addr: "elsewhere:7"}, {ID: "c"}, {Addr: "nobody:7"}})
		time.Sleep(minPause)
		settle()
		require.True(t, a.Send("b", false, []byte("found")))
		require.Equal(t, "found", string(b2.receive(t).Data))
		require.Len(t, a.peers, 1)
	})
}

func TestNewerConnectionReplacesOlder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.node("b", nil)
		older, err := w.stranger("a", "b", link.PurposeRaft)
		require.NoError(t, err)
		settle()
		newer, err := w.stranger("a", "b", link.PurposeRaft)
		require.NoError(t, err)
		defer newer.Close()
		defer older.Close()
		for err == nil {
			_, err = older.ReadFrame()
		}
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, newer.WriteFrame([]byte("here")))
		require.Equal(t, "here", string(b.receive(t).Data))
		require.True(t, b.Send("a", true, []byte("there")))
		frame, err := newer.ReadFrame()
		require.NoError(t, err)
		require.Equal(t, "there", string(frame))
	})
}

func TestRemovedIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.node("a", peers("b"))
		b := w.node("b", nil, func(c *Config) {
			c.Accepts = func(h link.Hello) error {
				return &link.RefusedError{Reason: link.ReasonRemoved, Text: "by entry 7"}
			}
		})
		time.Sleep(time.Minute)
		require.Contains(t, a.log.text.String(), "by entry 7")
		require.LessOrEqual(t, a.log.count("cannot connect to peer"), 4)
		require.LessOrEqual(t, b.log.count("not accepted"), 60)
		require.Contains(t, b.log.text.String(), "by entry 7")
	})
}

func TestHandlers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		started, ended := make(chan link.Purpose, 3), make(chan link.Purpose, 3)
		handle := func(c *link.Conn) {
			started <- c.Remote().Purpose
			for {
				frame, err := c.ReadFrame()
				if err != nil {
					break
				}
				c.WriteFrame(frame)
			}
			time.Sleep(time.Second)
			ended <- c.Remote().Purpose
		}
		b := w.node("b", nil, func(c *Config) { c.OnClient, c.OnSnapshot = handle, handle })
		for _, purpose := range []link.Purpose{link.PurposeClient, link.PurposeStream, link.PurposeSnapshot} {
			c, err := w.stranger("a", "b", purpose)
			require.NoError(t, err)
			defer c.Close()
			require.Equal(t, purpose, <-started)
			require.NoError(t, c.WriteFrame([]byte("echo")))
			frame, err := c.ReadFrame()
			require.NoError(t, err)
			require.Equal(t, "echo", string(frame))
		}
		b.Close()
		require.Len(t, ended, 3, "Close waits for them")

		w.node("d", nil)
		for _, purpose := range []link.Purpose{link.PurposeClient, link.PurposeStream, link.PurposeSnapshot} {
			_, err := w.stranger("a", "d", purpose)
			var refused *link.RefusedError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, link.ReasonPurpose, refused.Reason)
		}
	})
}

// TestCrowd: many who say nothing do not keep out those who do.
func TestCrowd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.node("b", nil)
		began := time.Now()
		var crowd []net.Conn
		for range 266 {
			c, err := w.Network.Dial(t.Context(), "x", "b:7")
			require.NoError(t, err)
			crowd = append(crowd, c)
			settle()
		}
		c, err := w.stranger("a", "b", link.PurposeRaft)
		require.NoError(t, err)
		defer c.Close()
		_, err = crowd[0].Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "the oldest had to go")
		require.Zero(t, time.Since(began))
		settle()
		b.mu.Lock()
		require.LessOrEqual(t, len(b.pending), 256)
		b.mu.Unlock()
		time.Sleep(6 * time.Second)
		settle()
		b.mu.Lock()
		require.Empty(t, b.pending, "and nobody may stay")
		b.mu.Unlock()
		require.LessOrEqual(t, b.log.count("not accepted"), 3)
		for _, c := range crowd {
			c.Close()
		}
	})
}

func TestClose(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.node("a", peers("b", "nobody")), w.node("b", peers("a"))
		time.Sleep(maxPause)
		for range 2 * received { // its reader waits for somebody to receive
			a.Send("b", false, []byte("x"))
		}
		silent, err := w.Network.Dial(t.Context(), "x", "b:7")
		require.NoError(t, err)
		defer silent.Close()
		settle()
		began := time.Now()
		b.Close()
		a.Close()
		a.Close()
		require.Zero(t, time.Since(began))
		n := 0
		for range b.Received() {
			n++
		}
		require.Equal(t, received, n)
		for range a.Unreachable() {
		}
		require.False(t, a.Send("b", true, []byte("x")))
		a.SetPeers(peers("c"))
		require.ErrorIs(t, a.Run(), api.ErrClosed)
		require.ErrorIs(t, a.Snapshot(t.Context(), "b", nil, 0, nil), api.ErrClosed)
		_, err = w.Network.Dial(t.Context(), "x", "b:7")
		require.Error(t, err)
	})
}

func TestRunRefusesWhatCannotWork(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		good := func() Config {
			l, err := w.Listen("q:7")
			require.NoError(t, err)
			return Config{Self: identity("q"), Listener: l, Dial: func(context.Context, string) (net.Conn, error) { return nil, io.EOF }}
		}
		for name, change := range map[string]func(*Config){
			"listener": func(c *Config) { c.Listener.Close(); c.Listener = nil },
			"dial":     func(c *Config) { c.Dial = nil },
			"identity": func(c *Config) { c.Self.Insecure = false },
			"client":   func(c *Config) { c.Self.Peer = false },
			"":         func(*Config) {},
		} {
			cfg := good()
			change(&cfg)
			tr := New(cfg)
			err := tr.Run()
			if name == "" {
				require.NoError(t, err)
				err = tr.Run()
			}
			require.ErrorIs(t, err, api.ErrInvalid, name)
			tr.Close()
		}
	})
}

// brokenListener fails a few times, as one does that has no file descriptors left.
type brokenListener struct {
	net.Listener
	failures int
}

func (l *brokenListener) Accept() (net.Conn, error) {
	if l.failures--; l.failures >= 0 {
		return nil, errors.New("too many open files")
	}
	return l.Listener.Accept()
}

func TestListenerFails(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.node("b", nil, func(c *Config) { c.Listener = &brokenListener{c.Listener, 5} })
		c, err := w.stranger("a", "b", link.PurposeClient)
		require.ErrorIs(t, err, api.ErrRefused) // it was accepted, in the end
		require.Nil(t, c)
		require.Equal(t, 1, b.log.count("too many open files"))
	})
}

func TestMailbox(t *testing.T) {
	m := newMailbox()
	for range 3 {
		m.put("a")
		m.put("b")
	}
	id, ok := m.next()
	require.True(t, ok)
	require.Equal(t, "a", id)
	m.put("a") // it is being told: it has to be told again
	for _, want := range []string{"b", "a"} {
		id, _ = m.next()
		require.Equal(t, want, id)
	}
	_, ok = m.next()
	require.False(t, ok)
	for i := range mailboxSize + 5 {
		m.put(string(numbered(i)))
	}
	id, _ = m.next()
	require.Equal(t, string(numbered(5)), id, "the newest are kept")
	require.Len(t, m.known, mailboxSize-1)
}
