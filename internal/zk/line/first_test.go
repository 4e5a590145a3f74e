package line

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// A lapse of the lease that is over before the contender looks again is reported: its user
// may have found the grant dead by the clock, and must not be left with it.
func TestShortLapseIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, _, err := srv.Connect(4 * time.Second)
		require.NoError(t, err)
		_, err = conn.Create("/line", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		type told struct{ first, proven bool }
		var states []told
		busy, proven := make(chan struct{}), make(chan struct{})
		ctx, leave := context.WithCancelCause(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = Stand(ctx, &Config{
				Conn: conn, Dir: "/line", Naming: CuratorLatch, ACL: zk.WorldACL(zk.PermAll), Log: slog.New(slog.DiscardHandler),
			}, func(s State) {
				states = append(states, told{s.First, s.Proven})
				if len(states) == 1 && s.Proven {
					close(proven)
					<-busy
				}
			})
		}()
		<-proven
		time.Sleep(time.Second)
		session := conn.SessionID()
		srv.Blackhole(zktest.BothWays, session)
		time.Sleep(2200 * time.Millisecond) // longer than half the timeout
		srv.Heal(session)
		time.Sleep(2 * time.Second)
		require.Equal(t, session, conn.SessionID())
		close(busy)
		time.Sleep(100 * time.Millisecond)
		leave(errors.New("enough"))
		<-done
		require.Equal(t, []told{{true, true}, {true, false}, {true, true}, {false, false}}, states)
		conn.Close()
		time.Sleep(time.Second)
	})
}
