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

// told is a logger's handler that passes on what is said.
type told struct {
	slog.Handler
	all chan string
}

func (told) Enabled(context.Context, slog.Level) bool { return true }
func (l told) WithAttrs([]slog.Attr) slog.Handler     { return l }

func (l told) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "client") {
		l.all <- r.Message
	}
	return nil
}

// A client that is lost without closing its connection is given up, a slow one is not.
func TestClientThatReadsNothing(t *testing.T) {
	for _, purpose := range []link.Purpose{link.PurposeClient, link.PurposeStream} {
		t.Run(purpose.String(), func(t *testing.T) { testClientThatReadsNothing(t, purpose) })
	}
}

func testClientThatReadsNothing(t *testing.T, purpose link.Purpose) {
	var ended chan string
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.leader(t)
		for range 20 {
			w.propose(t, p, strings.Repeat("x", 100<<10))
		}
		raw, err := w.net.Dial(t.Context(), "client:1", p.Addr)
		require.NoError(t, err)
		conn, err := link.Dial(t.Context(), raw, link.Identity{Cluster: "test", ID: "client", Insecure: true}, p.ID, purpose)
		require.NoError(t, err)
		if purpose == link.PurposeStream {
			// The stream has more data than the network holds. Nothing reads it.
			stream := rpc.Entries(t.Context(), conn, 1, 0)
			defer stream.Close()
			_, err = stream.Next()
			require.NoError(t, err)
			time.Sleep(10 * time.Minute)
			require.Empty(t, ended, "a client that is only slow is served")
			w.net.Cut(p.Addr, "client:1")
			w.net.Cut("client:1", p.Addr)
		} else {
			caller := rpc.NewCaller(conn)
			defer caller.Close()
			_, err = caller.Info(t.Context())
			require.NoError(t, err)
			w.net.Cut(p.Addr, "client:1")
			for range 100 {
				go func() { _, _ = caller.Election(t.Context(), strings.Repeat("\xff", 1<<10)) }() // the reply is long
			}
		}
		select {
		case what := <-ended:
			require.Contains(t, what, "ended")
		case <-time.After(time.Minute):
			t.Fatal("it is waited for")
		}
	}, func(c *raftlog.Config) {
		ended = make(chan string, 1) // in the bubble
		c.Logger = slog.New(told{slog.DiscardHandler, ended})
	})
}
