package queue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// Round trips that are waited for one after another: an item is read behind its claim,
// not after it.
func TestRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, _, err := srv.Connect(10 * time.Second)
		require.NoError(t, err)
		synctest.Wait()
		q, err := New(conn, "/q", Config{})
		require.NoError(t, err)
		pass := func() (put, take, ack time.Duration) {
			begin := time.Now()
			require.NoError(t, q.Put(t.Context(), []byte("x")))
			put = time.Since(begin)
			item, err := q.Take(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, item.Attempt())
			take = time.Since(begin) - put
			require.NoError(t, item.Ack(t.Context()))
			return put, take, time.Since(begin) - put - take
		}
		pass() // makes what is missing
		const trip = 10 * time.Millisecond
		srv.Delay(zktest.BothWays, trip/2)
		put, take, ack := pass()
		require.Equal(t, trip, put)
		require.Equal(t, 2*trip, take, "the listing, and the claim with the read behind it")
		require.Equal(t, trip, ack)
		require.NoError(t, q.Close(t.Context()))
	})
}
