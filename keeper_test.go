package leaderelection_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// ClickHouse Keeper gives a client that reconnects a new session, and keeps the old one
// until its timeout. The candidate deletes the znode of the old session itself, so that
// the follower does not wait for that.
func TestNewSessionOnReconnect(t *testing.T) {
	for name, rejoins := range map[string]bool{"ends": false, "rejoins": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.Start(t, zktest.WithoutReattach())
				options := []leaderelection.Option{leaderelection.WithCreateNode()}
				if rejoins {
					options = append(options, leaderelection.WithRejoin())
				}
				conn := dialed(t, srv)
				leader := stand(t, conn, options...)
				old := leader.leads(t, time.Minute)
				time.Sleep(time.Second)
				follower := stand(t, dialed(t, srv), options...)
				time.Sleep(10 * time.Second)
				srv.DropConnections(conn.SessionID())
				begin := time.Now()
				<-old.Done()
				follower.leads(t, 10*time.Second)
				require.Less(t, time.Since(begin), 1500*time.Millisecond, "the client waits for a second before it connects")
				require.NoError(t, follower.Resign())
				if rejoins {
					leader.leads(t, time.Second)
				} else {
					require.ErrorIs(t, <-leader.ended, leaderelection.ErrSessionExpired)
				}
				require.NoError(t, leader.Resign())
			})
		})
	}
}
