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
			play(t, 1, func(w *world) {
				conn, slow := w.connectNarrow()
				var all []*candidate
				for range n {
					all = append(all, w.enlist(conn))
				}
				w.pass(time.Second + 60*time.Millisecond)
				slow.slow(500 * time.Microsecond)
				conn.Close()
				w.pass(timeout)
				for i, c := range all {
					require.ErrorIs(w, c.over(), leaderelection.ErrConnClosed)
					if i > 0 {
						require.NotContains(w, c.roles(), leaderelection.Leader)
					}
				}
			})
		})
	}
}
