package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestCountMessages_OmitsPings checks that countMessages does not count pings, handshakes and replies as requests,
// and does not count replies as events.
func TestCountMessages_OmitsPings(t *testing.T) {
	requests, events := countMessages([]zkproxy.Record{
		{Kind: zkproxy.Request, Op: zktest.OpConnect},
		{Kind: zkproxy.Request, Op: zktest.OpPing},
		{Kind: zkproxy.Request, Op: zktest.OpGetChildren2},
		{Kind: zkproxy.Reply, Op: zktest.OpGetChildren2},
		{Kind: zkproxy.Request, Op: zktest.OpGetChildren},
		{Kind: zkproxy.Request, Op: zktest.OpDelete},
		{Kind: zkproxy.Request, Op: zktest.OpAuth},
		{Kind: zkproxy.Event, EventType: 2},
		{Kind: zkproxy.Event, EventType: 3},
		{Kind: zkproxy.Event, EventType: 2},
	})
	require.Equal(t, messageCounts{"get children": 2, "delete": 1, "operation 100": 1}, requests)
	require.Equal(t, 4.0, requests.total())
	events.divideBy(2)
	require.Equal(t, "deleted 1.00, data changed 0.50", events.String())
}

// TestNewestConnection_ReturnsLastToConnect checks that newestConnection returns the connection that has connected
// last, and not the connection with the latest request, so that idle transactions are attributed to the right
// candidate.
func TestNewestConnection_ReturnsLastToConnect(t *testing.T) {
	require.Equal(t, 7, newestConnection([]zkproxy.Record{
		{Kind: zkproxy.Request, Op: zktest.OpConnect, Conn: 7}, {Kind: zkproxy.Request, Op: zktest.OpPing, Conn: 9},
	}))
	require.Zero(t, newestConnection(nil))
}
