package leaderelection

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// A leadership that ends before its status was read is not delivered after that.
func TestUnreadLeadershipIsWithdrawn(t *testing.T) {
	for name, reason := range map[string]error{"deleted": zkerror.ErrDeleted, "expired": zkerror.ErrSessionExpired} {
		t.Run(name, func(t *testing.T) {
			e := &Election{
				conn: new(zk.Conn), node: "/election", options: &options{},
				candidacy: NewCandidacy(t.Context(), nil), renamed: make(chan struct{}, 1),
			}
			e.queueChanged(queue.State{Path: "/election/n_0000000000", First: true, Proven: true, Deadline: func() time.Time { return time.Now().Add(time.Hour) }})
			leadership := e.Current().Leadership
			require.NoError(t, leadership.Err())
			e.queueChanged(queue.State{Err: reason})
			require.Error(t, leadership.Err())
			require.Nil(t, e.Current().Leadership)
			select {
			case s := <-e.Status():
				require.Nil(t, s.Leadership, "it is over")
			default:
			}
		})
	}
}
