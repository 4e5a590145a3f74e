package raftlog_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
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

// TestServeClient_Stalled fails if the connection of a lost client is not closed, or that of a slow
// client is.
func TestServeClient_Stalled(t *testing.T) {
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
		raw, err := h.net.Dial(t.Context(), "client:1", p.Addr)
		require.NoError(t, err)
		conn, err := link.Dial(t.Context(), raw, link.Identity{Cluster: "test", ID: "client", Insecure: true}, p, purpose)
		require.NoError(t, err)
		if purpose == link.PurposeStream {
			// The stream has more data than the network holds. Nothing reads it.
			stream := rpc.Entries(t.Context(), conn, 1, 0)
			defer stream.Close()
			_, err = stream.Next()
			require.NoError(t, err)
			time.Sleep(10 * time.Minute)
			require.Empty(t, ended, "a slow client is disconnected")
			h.net.Cut(p.Addr, "client:1")
			h.net.Cut("client:1", p.Addr)
		} else {
			caller := rpc.NewCaller(conn)
			defer caller.Close()
			_, err = caller.Info(t.Context())
			require.NoError(t, err)
			h.net.Cut(p.Addr, "client:1")
			for range 100 {
				go func() { _, _ = caller.Election(t.Context(), strings.Repeat("\xff", 1<<10)) }() // the reply is long
			}
		}
		select {
		case message := <-ended:
			require.Contains(t, message, "ended")
		case <-time.After(time.Minute):
			t.Fatal("the connection is not closed")
		}
	}, func(c *raftlog.Config) {
		ended = make(chan string, 1) // created in the bubble
		c.Logger = slog.New(messageHandler{slog.DiscardHandler, ended})
	})
}
