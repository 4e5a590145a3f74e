package raftlog_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
)

// messageHandler is a slog.Handler that sends the messages about clients to a channel.
type messageHandler struct {
	slog.Handler
	messages chan string
}

func (messageHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h messageHandler) WithAttrs([]slog.Attr) slog.Handler     { return h }

func (h messageHandler) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "client") {
		h.messages <- r.Message
	}
	return nil
}

// dialClient connects a client with the given ID, at the address from, to peer p.
func (h *harness) dialClient(t *testing.T, from, id string, p api.Peer, purpose link.Purpose) (net.Conn, *link.Conn) {
	t.Helper()
	raw, err := h.net.Dial(t.Context(), from, p.Addr)
	require.NoError(t, err)
	conn, err := link.Dial(t.Context(), raw, link.Identity{Cluster: "test", ID: id, Insecure: true}, p, purpose)
	require.NoError(t, err)
	return raw, conn
}

// TestServeClient_ClosesConnectionOfLostClient checks that a peer closes the connection of a client that it
// cannot reach any more, and keeps the connection of a client that reads slowly.
func TestServeClient_ClosesConnectionOfLostClient(t *testing.T) {
	for _, purpose := range []link.Purpose{link.PurposeClient, link.PurposeStream} {
		t.Run(purpose.String(), func(t *testing.T) { testStalledClient(t, purpose) })
	}
}

func testStalledClient(t *testing.T, purpose link.Purpose) {
	var ended chan string
	runCluster(t, 1, func(t *testing.T, h *harness) {
		p := h.waitForLeader(t)
		for range 20 {
			h.proposeAll(t, p, strings.Repeat("x", 100<<10))
		}
		_, conn := h.dialClient(t, "client:1", "client", p, purpose)
		if purpose == link.PurposeStream {
			// The stream has more data than the network holds, and the client reads only its first element.
			stream := rpc.Entries(t.Context(), conn, 1, 0)
			defer stream.Close()
			_, err := stream.Next()
			require.NoError(t, err)
			time.Sleep(10 * time.Minute)
			require.Empty(t, ended, "a slow client is disconnected")
			h.net.Cut(p.Addr, "client:1")
			h.net.Cut("client:1", p.Addr)
		} else {
			caller := rpc.NewCaller(conn)
			defer caller.Close()
			_, err := caller.Info(t.Context())
			require.NoError(t, err)
			h.net.Cut(p.Addr, "client:1")
			for range 100 {
				// Each reply quotes the invalid name, so that together the replies exceed what the network
				// holds.
				go func() { _, _ = caller.Election(t.Context(), strings.Repeat("\xff", 1<<10)) }()
			}
		}
		require.Contains(t, receive(t, ended), "ended")
	}, func(c *raftlog.Config) {
		ended = make(chan string, 1) // synctest requires that the channel is created in the bubble
		c.Logger = slog.New(messageHandler{slog.DiscardHandler, ended})
	})
}

// TestServeClient_LimitsIncompleteFrames checks that clients that do not complete a frame do not occupy 64 MB
// together, do not prevent updates of another client from the same address, and are disconnected.
func TestServeClient_LimitsIncompleteFrames(t *testing.T) {
	for _, c := range []struct{ clients, size, sent int }{{16, 16 << 20, 15 << 20}, {200, 16 << 20, 1 << 20}, {200, 128 << 10, 127 << 10}} {
		runCluster(t, 1, func(t *testing.T, h *harness) {
			p := h.waitForLeader(t)
			_, conn := h.dialClient(t, "client:1", "other", p, link.PurposeClient)
			other := rpc.NewCaller(conn)
			defer other.Close()
			propose := func() {
				_, err := other.Propose(contextWithin(t, time.Second), api.NewRequestID(), make([]byte, 1<<10))
				require.NoError(t, err)
			}
			before := heapInUse()
			var raws []net.Conn
			data := make([]byte, c.sent)
			for i := range c.clients {
				raw, _ := h.dialClient(t, "client:1", fmt.Sprint("stalled", i), p, link.PurposeClient) // each connection has another client ID
				raws = append(raws, raw)
			}
			for _, raw := range raws {
				go func() {
					_, _ = raw.Write(binary.BigEndian.AppendUint32(nil, uint32(c.size)))
					_, _ = raw.Write(data)
				}()
			}
			synctest.Wait()
			occupied := heapInUse() - before
			t.Logf("%d clients, each of which has sent %d bytes of a frame of %d bytes, occupy %d bytes", c.clients, c.sent, c.size, occupied)
			require.Less(t, occupied, int64(64_000_000))
			for range 40 {
				propose()
				time.Sleep(200 * time.Millisecond)
			}
			for _, raw := range raws {
				_, err := raw.Read(make([]byte, 1))
				require.Error(t, err, "the connection of a stalled client is open")
			}
			raws = nil
			require.Less(t, heapInUse()-before, int64(8_000_000), "%d clients", c.clients)
			propose()
		})
	}
}

// TestServeClient_DoesNotBlockJoiningPeer checks that a peer can join even if clients with the same address
// have reached the limit of connections for an address.
func TestServeClient_DoesNotBlockJoiningPeer(t *testing.T) {
	runCluster(t, 1, func(t *testing.T, h *harness) {
		p, joins := h.waitForLeader(t), peerInfo(1)
		dial := func() *link.Conn {
			_, conn := h.dialClient(t, joins.Addr, "client", p, link.PurposeClient)
			return conn
		}
		for range 256 {
			defer dial().Close()
		}
		synctest.Wait()
		caller := rpc.NewCaller(dial())
		defer caller.Close()
		_, err := caller.Info(t.Context())
		require.ErrorIs(t, err, api.ErrBusy)
		h.startPeer(joins)
	})
}

// heapInUse returns the size of the objects on the heap after a garbage collection, in bytes.
func heapInUse() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestClientAddress_GroupsByNetwork checks that the limits of clients apply to one IPv4 address, or to one /64
// network of IPv6.
func TestClientAddress_GroupsByNetwork(t *testing.T) {
	for from, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1", "[::ffff:10.0.0.1]:80": "::ffff:10.0.0.1", "[fe80::1%eth0]:80": "fe80::/64",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64", "host:7": "host",
	} {
		require.Equal(t, want, raftlog.ClientAddress(from))
	}
}
