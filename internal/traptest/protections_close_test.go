package traptest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// While an owner closes a connection the server still tells of its candidates'
// ends, one after the other. A request that one of them sends then can hang the
// client library for ever: its goroutine would be left over in the bubble, which
// fails the test.
func TestProtection_ClosingClientIsNotAsked(t *testing.T) {
	for n := 2; n <= 5; n++ {
		t.Run(fmt.Sprintf("%d candidates", n), func(t *testing.T) {
			withServers(t, 1, func(h *harness) {
				conn, pause := h.connectSlowly()
				var all []*candidate
				for range n {
					all = append(all, h.join(conn))
				}
				h.advance(time.Second + 60*time.Millisecond)
				pause.set(500 * time.Microsecond)
				conn.Close()
				h.advance(timeout)
				for i, c := range all {
					require.ErrorIs(h, c.requireOver(), leaderelection.ErrConnClosed)
					if i > 0 {
						require.NotContains(h, c.roles(), leaderelection.Leader)
					}
				}
			})
		})
	}
}
