package cache

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
)

// TestCache_BatchesEndAfterQuietPeriod checks that a batch does not end before a quiet period, and lasts no longer
// than ten quiet periods, that no events are missing, and that the iteration ends with the context and with the
// cache.
func TestCache_BatchesEndAfterQuietPeriod(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a")
		c := openCache(h, "/a", Children)
		ctx, cancel := context.WithCancel(h.Context())
		type arrival struct {
			at     time.Duration
			events int
		}
		var arrivals []arrival
		start, ended := time.Now(), make(chan struct{})
		go func() {
			defer close(ended)
			for batch := range c.Batches(ctx, time.Second) {
				arrivals = append(arrivals, arrival{time.Since(start).Round(time.Second), len(batch)})
			}
		}()
		<-c.Filled()
		synctest.Wait()
		time.Sleep(time.Minute)
		for i := range 3 {
			create(h, fmt.Sprint("/a/", i))
		}
		time.Sleep(time.Minute)
		for i := range 30 { // the events are half a second apart, so that no quiet period ends the batch
			set(h, "/a", fmt.Sprint(i))
			time.Sleep(time.Second / 2)
		}
		time.Sleep(time.Minute)
		set(h, "/a", "last")
		synctest.Wait()
		cancel()
		<-ended
		require.Equal(h, arrival{time.Second, 2}, arrivals[0]) // the batch has an event for /a, and Fresh
		require.Equal(h, arrival{61 * time.Second, 3}, arrivals[1])
		require.Equal(h, 130*time.Second, arrivals[2].at)
		require.Len(h, arrivals, 5)
		require.Equal(h, 30, arrivals[2].events+arrivals[3].events)
		require.Equal(h, 1, arrivals[4].events)

		require.NoError(h, c.Close())
		for range c.Batches(h.Context(), time.Second) {
			h.Fatal("Batches of a closed cache returns a batch")
		}
	})
}
