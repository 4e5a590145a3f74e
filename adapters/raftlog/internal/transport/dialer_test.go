package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// TestDialer_ReconnectsAfterPartition checks that a peer detects a partition, although it causes no
// error, and connects again afterwards.
func TestDialer_ReconnectsAfterPartition(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		a, b := h.startPeer("a", peersOf("b")), h.startPeer("b", peersOf("a"))
		time.Sleep(maxPause)
		h.network.CutBoth("a:7", "b:7")
		require.True(t, a.Send("b", false, []byte("may be lost")))
		time.Sleep(readTimeout + keepaliveInterval)
		requireUnreachable(t, a, "b")
		requireUnreachable(t, b, "a")
		require.False(t, a.Send("b", false, []byte("dropped")))
		requireUnreachable(t, a, "b")
		time.Sleep(time.Minute)

		h.network.HealBoth("a:7", "b:7")
		time.Sleep(maxPause)
		requireDelivery(t, a, b, "again")
		requireDelivery(t, b, a, "back")
	})
}

// TestDialer_PausesIncrease checks that the pauses between attempts to connect increase up to a limit.
// After a success they start again with the shortest one, and a new address or a connection of the peer
// ends a pause.
func TestDialer_PausesIncrease(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		var mu sync.Mutex
		var times []time.Time
		var refuse bool
		last := time.Now()
		a := h.startPeer("a", nil, func(c *Config) {
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
			waitIdle()
			mu.Lock()
			defer mu.Unlock()
			for _, t := range times {
				list = append(list, t.Sub(last))
				last = t
			}
			times = nil
			return list
		}
		a.SetPeers(peersOf("b"))
		time.Sleep(4 * time.Second)
		const ms = time.Millisecond
		want := []time.Duration{0, 37_500 * time.Microsecond, 75 * ms, 150 * ms, 300 * ms, 600 * ms, 750 * ms, 750 * ms, 750 * ms}
		require.Equal(t, want, gaps())
		require.Equal(t, 1, h.logs["a"].countText("cannot connect to peer"), "the same error was logged repeatedly")

		// After a success, the pauses start again with the shortest one.
		h.startPeer("b", nil)
		time.Sleep(time.Second)
		require.Len(t, gaps(), 1)
		mu.Lock()
		refuse = true
		mu.Unlock()
		last = time.Now()
		h.network.Reset("a:7", "b:7")
		time.Sleep(400 * ms)
		require.Equal(t, []time.Duration{37_500 * time.Microsecond, 37_500 * time.Microsecond, 75 * ms, 150 * ms}, gaps())

		// A new address, or a connection that the peer establishes, ends a pause.
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
		c, err := h.dialAs("b", "a", link.PurposeRaft)
		require.NoError(t, err)
		defer c.Close()
		require.Equal(t, []time.Duration{0}, gaps())
		// SetPeers with unchanged peers does not end a pause.
		a.SetPeers([]api.Peer{{ID: "b", Addr: "elsewhere:7"}})
		require.Empty(t, gaps())
	})
}

func TestDialer_ConnectsToNewAddress(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		a, b := h.startPeer("a", peersOf("b")), h.startPeer("b", nil)
		waitIdle()
		b.Close()
		l, err := h.network.Listen("elsewhere:7")
		require.NoError(t, err)
		b2 := h.startPeer("b", nil, func(c *Config) { c.Listener.Close(); c.Listener = l })
		a.SetPeers([]api.Peer{{ID: "b", Addr: "elsewhere:7"}, {ID: "c"}, {Addr: "absent:7"}})
		time.Sleep(minPause)
		waitIdle()
		requireDelivery(t, a, b2, "found")
		require.Len(t, a.peers, 1)
	})
}

// TestDialer_TriesBothAddresses checks that a peer finds another peer at the second of its addresses, and that a
// connection continues while its address remains in the list.
func TestDialer_TriesBothAddresses(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		b := h.startPeer("b", nil)
		old, now := api.Peer{ID: "b", Addr: "elsewhere:7"}, api.Peer{ID: "b", Addr: "b:7"}
		a := h.startPeer("a", []api.Peer{old, now})
		waitIdle()
		requireDelivery(t, a, b, "found")
		require.Equal(t, 1, h.logs["a"].countText("cannot connect to peer"))

		a.SetPeers([]api.Peer{now})
		waitIdle()
		require.Zero(t, h.logs["a"].countText("connection to peer ended"))
		h.network.Reset("a:7", "b:7")
		time.Sleep(minPause)
		waitIdle()
		require.Equal(t, 2, h.logs["a"].countText("connected to peer"))
		require.Equal(t, 1, h.logs["a"].countText("cannot connect to peer"), "the old address is not used any more")
	})
}

// TestListen_AcceptsHandshakesBeforeRun checks that other processes need not wait for a handshake with a
// peer that listens and does not run yet.
func TestListen_AcceptsHandshakesBeforeRun(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		l, err := h.network.Listen("b:7")
		require.NoError(t, err)
		b := New(Config{Self: identityOf("b"), Listener: l, Dial: func(ctx context.Context, to string) (net.Conn, error) { return h.network.Dial(ctx, "b:7", to) }})
		defer b.Close()
		b.Listen()
		start := time.Now()
		_, err = h.dialAs("a", "b", link.PurposeRaft)
		require.Error(t, err)
		require.NotErrorIs(t, err, api.ErrRefused)
		require.Zero(t, time.Since(start))
		b.SetClaim(link.Claim{Instance: "i"})
		require.NoError(t, b.Run())
		c, err := h.dialAs("a", "b", link.PurposeRaft)
		require.NoError(t, err)
		require.Equal(t, "i", c.Remote().Claim.Instance)
		require.NoError(t, c.Close())
	})
}
