package elector_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// ZooKeeper starts an hour after the program, and returns without its data an hour later.
func TestLeadWaitsForZooKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		srv.Stop()
		conn, _, err := zkdial.Connect([]string{srv.Name()}, 4*time.Second, zkdial.WithDialer(srv.Dialer()))
		require.NoError(t, err)
		c, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode(), leaderelection.WithRejoin())
		require.NoError(t, err)
		leads := make(chan error)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- elector.Lead(ctx, c, func(ctx context.Context, _ *leaderelection.Leadership) error {
				leads <- nil
				<-ctx.Done()
				leads <- context.Cause(ctx)
				return nil
			})
		}()
		select {
		case <-leads:
			require.Fail(t, "nobody is there")
		case <-time.After(time.Hour):
		}
		srv.Restart(zktest.KeepTree)
		<-leads
		time.Sleep(time.Hour)
		srv.Restart(zktest.LoseAll)
		require.Error(t, <-leads)
		<-leads
		stop()
		<-leads
		require.NoError(t, <-done)
		conn.Close()
		time.Sleep(time.Second)
	})
}
