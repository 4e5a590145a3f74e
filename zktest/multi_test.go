package zktest_test

import (
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/wire"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestMultiRead_ClosesConnectionIfReplyIsTooLarge checks that the server closes the connection instead of sending
// a reply that is larger than its limit: a small packet can request the same large znode many times.
func TestMultiRead_ClosesConnectionIfReplyIsTooLarge(t *testing.T) {
	s := zktest.Start(t)
	c := newRawClient(t, s, false)
	c.send(t, encodeCreate("/large", slices.Repeat([]byte("x"), 1_000_000)))
	require.NoError(t, c.discardReply())
	read := func(n int) func(*wire.Encoder) {
		return func(e *wire.Encoder) {
			e.Int(int32(wire.MultiRead))
			for range n {
				e.Int(int32(wire.GetData))
				e.Bool(false)
				e.Int(-1)
				e.String("/large")
				e.Bool(false)
			}
			e.Int(-1)
			e.Bool(true)
			e.Int(-1)
		}
	}
	greedy := newRawClient(t, s, false)
	greedy.send(t, read(10_000))
	assert.Equal(t, io.EOF, greedy.discardReply(), "10 GB")
	// Use a new client, because the session of c may have expired in the meantime on a busy machine.
	last := newRawClient(t, s, false)
	last.send(t, read(3))
	assert.NoError(t, last.discardReply(), "3 MB")
}
