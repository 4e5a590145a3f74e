package cache

import (
	"context"
	"iter"
	"time"
)

// maxBatch is the maximum number of events in a batch.
const maxBatch = 10_000

// Batches returns an iterator over the events, several at a time. A batch ends when no event has followed for the
// duration quiet, when ten times this duration has passed since its first event, or when it has 10,000 events.
// Batches is for programs that compute something expensive from all znodes, which often change together. Events of
// the same znode are not combined. The program must not receive from [Cache.Events] as well.
//
// The iteration ends after the events that were received before ctx was done or the cache ended; see [Cache.Err].
func (c *Cache) Batches(ctx context.Context, quiet time.Duration) iter.Seq[[]Event] {
	return func(yield func([]Event) bool) {
		for {
			batch, more := c.batch(ctx, quiet)
			if len(batch) > 0 && !yield(batch) || !more {
				return
			}
		}
	}
}

// batch receives the events of one batch. more is false if ctx is done or the cache has ended.
func (c *Cache) batch(ctx context.Context, quiet time.Duration) (batch []Event, more bool) {
	var pause, limit <-chan time.Time // timers; both are nil before the first event of the batch
	for len(batch) < maxBatch {
		select {
		case e, open := <-c.events:
			if !open {
				return batch, false
			}
			if len(batch) == 0 {
				limit = time.After(10 * quiet)
			}
			batch, pause = append(batch, e), time.After(quiet)
		case <-pause:
			return batch, true
		case <-limit:
			return batch, true
		case <-ctx.Done():
			return batch, false
		}
	}
	return batch, true
}
