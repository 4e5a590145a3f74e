package zktest_test

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/wire"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestReplies_DoNotWaitForHook checks that a reply does not wait for the hook of a later request, and is not lost
// because of a later malformed packet, although the server usually writes replies together.
func TestReplies_DoNotWaitForHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.WithMaxPacket(1024))
		for name, set := range map[string]func(zktest.Match, zktest.HookFunc) *zktest.Hook{"before": s.Before, "after": s.After} {
			c := newRawClient(t, s, false)
			c.nc.SetReadDeadline(time.Now().Add(time.Minute))
			release := make(chan struct{})
			set(zktest.Match{Op: zktest.OpCreate, Nth: 1}, func(*zktest.Request) zktest.Verdict {
				<-release
				return zktest.Verdict{}
			})
			synctest.Wait() // wait until the server's writer waits
			c.send(t, encodePing, encodePing, encodeCreate("/"+name, nil), encodePing)
			for i := range 2 {
				require.NoError(t, c.discardReply(), "%s: reply %d", name, i)
			}
			close(release)
			for i := range 2 {
				require.NoError(t, c.discardReply(), "%s: reply %d", name, 2+i)
			}
		}
		c := newRawClient(t, s, false)
		c.send(t, encodePing, encodePing, encodeCreate("/large", make([]byte, 2000)))
		for i := range 2 {
			require.NoError(t, c.discardReply(), "reply %d before a packet that is too large", i)
		}
		assert.Equal(t, io.EOF, c.discardReply(), "after a packet that is too large")
	})
}

// TestReplies_DelayedReplyWakesWriter checks that the server writes a delayed reply that becomes due just when the
// writer starts to wait.
func TestReplies_DelayedReplyWakesWriter(t *testing.T) {
	s := zktest.Start(t)
	s.Delay(zktest.ToClient, 5*time.Microsecond)
	var wg sync.WaitGroup
	for range 32 {
		c := newRawClient(t, s, false)
		c.nc.SetReadDeadline(time.Now().Add(2 * time.Minute))
		wg.Go(func() {
			assert.NoError(t, c.sendRequests(2000, 1, func(e *wire.Encoder, i int) { e.Int(int32(i)); encodePing(e) }))
		})
	}
	wg.Wait()
}
