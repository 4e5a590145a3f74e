package transport

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

func TestListen_NewConnectionReplacesOlderOne(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		b := h.startPeer("b", nil)
		older, err := h.dialAs("a", "b", link.PurposeRaft)
		require.NoError(t, err)
		waitIdle()
		newer, err := h.dialAs("a", "b", link.PurposeRaft)
		require.NoError(t, err)
		defer newer.Close()
		defer older.Close()
		for err == nil {
			_, err = older.ReadFrame()
		}
		require.ErrorIs(t, err, io.EOF)
		requireReceipt(t, b, newer, "here")
		require.True(t, b.Send("a", true, []byte("there")))
		requireFrame(t, newer, "there")
	})
}

func TestListen_ReportsReasonToRejectedPeer(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		h.startPeer("a", peersOf("b"))
		h.startPeer("b", nil, func(c *Config) {
			c.Accepts = func(h link.Hello) error {
				return &link.RefusedError{Reason: link.ReasonRemoved, Text: "by entry 7"}
			}
		})
		time.Sleep(time.Minute)
		require.Contains(t, h.logs["a"].text.String(), "by entry 7")
		require.LessOrEqual(t, h.logs["a"].countText("cannot connect to peer"), 4)
		require.LessOrEqual(t, h.logs["b"].countText("not accepted"), 60)
		require.Contains(t, h.logs["b"].text.String(), "by entry 7")
	})
}

// TestCheckPeers_ClosesRejectedConnections checks that CheckPeers closes the connection of a peer that
// Config.Accepts rejects now, even if it rejects the peer between the handshake and the first frame, and
// closes no other connection.
func TestCheckPeers_ClosesRejectedConnections(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		var calls, rejectFrom atomic.Int32 // calls counts how often Accepts was called for peer a
		rejectFrom.Store(1000)
		b := h.startPeer("b", nil, func(c *Config) {
			c.Accepts = func(h link.Hello) error {
				if h.ID == "a" && calls.Add(1) >= rejectFrom.Load() {
					return &link.RefusedError{Reason: link.ReasonInstance}
				}
				return nil
			}
		})
		connect := func(id string) *link.Conn {
			c, err := h.dialAs(id, "b", link.PurposeRaft)
			require.NoError(t, err)
			waitIdle()
			return c
		}
		requireClosed := func(c *link.Conn) {
			_, err := c.ReadFrame()
			require.ErrorIs(t, err, io.EOF)
			c.Close()
		}
		a, other := connect("a"), connect("c")
		defer other.Close()
		b.CheckPeers()
		requireReceipt(t, b, a, "here")
		rejectFrom.Store(0)
		b.CheckPeers()
		requireClosed(a)
		// Accept peer a in the handshake, which is the next call of Accepts, and reject it after that.
		rejectFrom.Store(calls.Load() + 2)
		requireClosed(connect("a"))
		requireReceipt(t, b, other, "there")
	})
}

func TestListen_AcceptsClientsAndSnapshots(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
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
		b := h.startPeer("b", nil, func(c *Config) { c.OnClient, c.OnSnapshot = handle, handle })
		for _, purpose := range []link.Purpose{link.PurposeClient, link.PurposeStream, link.PurposeSnapshot} {
			c, err := h.dialAs("a", "b", purpose)
			require.NoError(t, err)
			defer c.Close()
			require.Equal(t, purpose, <-started)
			require.NoError(t, c.WriteFrame([]byte("echo")))
			requireFrame(t, c, "echo")
		}
		b.Close()
		require.Len(t, ended, 3, "Close has not waited for the functions")

		h.startPeer("d", nil)
		for _, purpose := range []link.Purpose{link.PurposeClient, link.PurposeStream, link.PurposeSnapshot} {
			_, err := h.dialAs("a", "d", purpose)
			var refused *link.RefusedError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, link.ReasonPurpose, refused.Reason)
		}
	})
}

// TestListen_LimitsPendingHandshakes checks that other processes can connect while many connections
// send nothing.
func TestListen_LimitsPendingHandshakes(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		b := h.startPeer("b", nil)
		start := time.Now()
		var silent []net.Conn
		for range 266 {
			c, err := h.network.Dial(t.Context(), "x", "b:7")
			require.NoError(t, err)
			silent = append(silent, c)
			waitIdle()
		}
		c, err := h.dialAs("a", "b", link.PurposeRaft)
		require.NoError(t, err)
		defer c.Close()
		_, err = silent[0].Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "the oldest handshake was not cancelled")
		require.Zero(t, time.Since(start))
		waitIdle()
		b.mu.Lock()
		require.LessOrEqual(t, len(b.pending), 256)
		b.mu.Unlock()
		time.Sleep(6 * time.Second)
		waitIdle()
		b.mu.Lock()
		require.Empty(t, b.pending, "a handshake has not timed out")
		b.mu.Unlock()
		require.LessOrEqual(t, h.logs["b"].countText("not accepted"), 3)
		for _, c := range silent {
			c.Close()
		}
	})
}

// brokenListener is a listener whose Accept fails a few times, as if there were no free file
// descriptors.
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

func TestListen_RetriesAfterErrors(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		h.startPeer("b", nil, func(c *Config) { c.Listener = &brokenListener{c.Listener, 5} })
		c, err := h.dialAs("a", "b", link.PurposeClient)
		require.ErrorIs(t, err, api.ErrRefused) // Accept has succeeded, and the peer has rejected the connection
		require.Nil(t, c)
		require.Equal(t, 1, h.logs["b"].countText("too many open files"))
	})
}

// TestSecrets_RemovedSecretClosesConnections checks that a transport closes a connection when its secret is
// not valid any more, and keeps other connections.
func TestSecrets_RemovedSecretClosesConnections(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		var current atomic.Pointer[api.Secrets]
		current.Store(&api.Secrets{Peers: [][]byte{[]byte("of peers")}, Clients: [][]byte{[]byte("old"), []byte("new")}})
		self := func(id string) link.Identity {
			i := identityOf(id)
			i.Insecure, i.Secrets = false, func() api.Secrets { return *current.Load() }
			return i
		}
		ended := make(chan string, 2)
		change := func(c *Config) {
			c.Self = self(c.Self.ID)
			c.OnClient = func(conn *link.Conn) {
				_, _ = conn.ReadFrame()
				ended <- conn.Remote().ID
			}
		}
		a := h.startPeer("a", peersOf("b"), change)
		b := h.startPeer("b", peersOf("a"), change)
		for _, secret := range []string{"old", "new"} {
			raw, err := h.network.Dial(t.Context(), addressOf(secret), addressOf("a"))
			require.NoError(t, err)
			conn, err := link.Dial(t.Context(), raw, link.Identity{Cluster: "c1", ID: secret, ClientSecret: []byte(secret)}, peersOf("a")[0], link.PurposeClient)
			require.NoError(t, err)
			defer conn.Close()
		}
		time.Sleep(time.Minute)
		current.Store(&api.Secrets{Peers: current.Load().Peers, Clients: [][]byte{[]byte("new")}})
		time.Sleep(2 * secretsInterval)
		waitIdle()
		require.Len(t, ended, 1)
		require.Equal(t, "old", <-ended)
		require.Empty(t, ended)
		requireDelivery(t, a, b, "frame")
		require.Equal(t, []Connection{{ID: "b", Connected: true}}, a.Connections())
		require.Zero(t, h.logs["a"].countText("connection to peer ended")+h.logs["a"].countText("connection from peer ended"))
	})
}

// TestConnections_ReportWhyPeersAreNotConnected checks that Connections returns the reason why a peer
// is not connected.
func TestConnections_ReportWhyPeersAreNotConnected(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		a := h.startPeer("a", peersOf("b", "c"))
		h.startPeer("b", nil, func(c *Config) { c.Self.Cluster = "c2" })
		time.Sleep(time.Minute)
		all := a.Connections()
		require.Equal(t, []string{"b", "c"}, []string{all[0].ID, all[1].ID})
		for _, c := range all {
			require.False(t, c.Connected)
			require.Error(t, c.Err)
		}
		require.ErrorIs(t, all[0].Err, api.ErrRefused)
		require.NotErrorIs(t, all[1].Err, api.ErrRefused)
	})
}
