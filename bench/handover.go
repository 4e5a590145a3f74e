package main

import (
	"context"
	"time"
)

// handOver describes a measurement of hand-overs between candidates.
type handOver struct {
	recipe recipe
	size   int // the number of candidates in the queue
	rounds int
	pause  time.Duration // the pause after each hand-over
	// takeOver closes the session of the head of the queue, instead of letting the head leave.
	takeOver bool
}

// measureHandOvers measures the time until the successor learns that it is the head of the queue. If the row watches
// is not nil, measureHandOvers adds the number of watches per candidate to that row.
func (b *bench) measureHandOvers(ctx context.Context, r, watches *row, h handOver) error {
	const warmups = 5
	defer reset(b.contestants)
	var turns []contestantTurn
	for _, c := range b.eligibleContestants([]*row{r}, b.contestants, h.size) {
		q, err := b.newHandOverQueue(ctx, c, h, min(h.size, warmups+h.rounds+2))
		if err != nil {
			if err := b.exclude(ctx, []*row{r}, c.name(), err); err != nil {
				return err
			}
			continue
		}
		if watches != nil {
			watches.Values[c.name()] = []float64{float64(q.watches) / float64(h.size)}
		}
		turns = append(turns, newTurn(c, func(ctx context.Context) (time.Duration, error) { return q.replaceHead(ctx, h.takeOver) }))
	}
	sleep(ctx, h.pause)
	return b.interleaveTurns(ctx, []*row{r}, warmups, h.rounds, h.pause, turns)
}

// newHandOverQueue fills a queue. The candidates that will become the head join in order, each with a separate
// session if the measurement closes sessions.
func (b *bench) newHandOverQueue(ctx context.Context, c contestant, h handOver, heads int) (*queue, error) {
	separate := 0
	if h.takeOver {
		separate = heads
	}
	q, err := newQueue(b.server, c, h.recipe, h.size, separate)
	if err != nil {
		return nil, err
	}
	return q, q.fillQueue(ctx, h.size, heads)
}
