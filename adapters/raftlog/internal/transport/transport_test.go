package transport

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

func TestTransport_KeepsIdleConnections(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		a := h.startPeer("a", peersOf("b"))
		h.startPeer("b", peersOf("a"))
		time.Sleep(10 * time.Minute)
		require.LessOrEqual(t, h.logs["a"].countText("connected to peer"), 1)
		require.LessOrEqual(t, h.logs["b"].countText("connected to peer"), 1)
		requireNoneUnreachable(t, a)
	})
}

// TestTransport_CloseDoesNotBlock checks that Close does not wait for other peers, and that a closed
// transport accepts neither connections nor frames.
func TestTransport_CloseDoesNotBlock(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		a, b := h.startPeer("a", peersOf("b", "absent")), h.startPeer("b", peersOf("a"))
		time.Sleep(maxPause)
		for range 2 * receiveBuffer { // send more frames than b buffers
			a.Send("b", false, []byte("x"))
		}
		silent, err := h.network.Dial(t.Context(), "x", "b:7")
		require.NoError(t, err)
		defer silent.Close()
		waitIdle()
		start := time.Now()
		b.Close()
		a.Close()
		a.Close()
		require.Zero(t, time.Since(start))
		n := 0
		for range b.Received() {
			n++
		}
		require.Equal(t, receiveBuffer, n)
		for range a.Unreachable() {
		}
		require.False(t, a.Send("b", true, []byte("x")))
		a.SetPeers(peersOf("c"))
		require.ErrorIs(t, a.Run(), api.ErrClosed)
		require.ErrorIs(t, a.Snapshot(t.Context(), "b", nil, 0, nil), api.ErrClosed)
		_, err = h.network.Dial(t.Context(), "x", "b:7")
		require.Error(t, err)
	})
}

func TestTransport_RunRejectsInvalidConfig(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		good := func() Config {
			l, err := h.network.Listen("q:7")
			require.NoError(t, err)
			return Config{Self: identityOf("q"), Listener: l, Dial: func(context.Context, string) (net.Conn, error) { return nil, io.EOF }}
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

// TestTransport_DeliversFramesOverTCP checks that small and large frames arrive in order over TCP
// sockets in real time, and that a peer without OnSnapshot refuses a snapshot.
func TestTransport_DeliversFramesOverTCP(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			a, b := connectOverTCP(t, mode)
			for i := range 200 {
				require.True(t, a.Send("b", false, append(numberedFrame(i), make([]byte, i<<8)...)))
			}
			for i := range 200 {
				f := <-b.Received()
				require.Equal(t, string(numberedFrame(i)), string(f.Data[:len(f.Data)-i<<8]))
				require.Equal(t, "a", f.From.ID)
			}
			var refused *link.RefusedError
			require.ErrorAs(t, a.Snapshot(t.Context(), "b", nil, 0, nil), &refused)
			require.Equal(t, link.ReasonPurpose, refused.Reason)
		})
	}
}
