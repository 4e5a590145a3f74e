package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun_SecondReplicaContinuesAfterFirst checks that the leader writes, and that the second replica writes
// after the first has stopped.
func TestRun_SecondReplicaContinuesAfterFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		var cancel [2]context.CancelFunc
		var ended [2]chan error
		for i := range cancel {
			conn, _, err := srv.Connect(4 * time.Second)
			require.NoError(t, err)
			var ctx context.Context
			ctx, cancel[i] = context.WithCancel(t.Context())
			ended[i] = make(chan error, 1)
			go func() { ended[i] <- run(ctx, conn) }()
			time.Sleep(10 * time.Second)
		}
		reader, _, err := srv.Connect(4 * time.Second)
		require.NoError(t, err)
		last := ""
		for i := range cancel {
			time.Sleep(2 * time.Second)
			data, _, err := reader.Get("/last-report")
			require.NoError(t, err)
			assert.NotEqual(t, last, string(data), "replica %d does not write", i)
			cancel[i]()
			require.NoError(t, <-ended[i])
			data, _, err = reader.Get("/last-report")
			require.NoError(t, err)
			last = string(data)
		}
	})
}
