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

// A client that takes nothing any more, and does not say so, is given up.
func TestClientThatReadsNothing(t *testing.T) {
	var ended chan string
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.leader(t)
		for range 20 {
			w.propose(t, p, strings.Repeat("x", 100<<10))
		}
		raw, err := w.net.Dial(t.Context(), "client:1", p.Addr)
		require.NoError(t, err)
		conn, err := link.Dial(t.Context(), raw, link.Identity{Cluster: "test", ID: "client", Insecure: true}, p.ID, link.PurposeClient)
		require.NoError(t, err)
		caller := rpc.NewCaller(conn)
		defer caller.Close()
		_, err = caller.Info(t.Context())
		require.NoError(t, err)
		w.net.Cut(p.Addr, "client:1")
		_, err = caller.Stream(t.Context(), 1)
		require.NoError(t, err)
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
