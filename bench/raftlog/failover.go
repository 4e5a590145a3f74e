package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// measureFailOver returns the time from just before the leader of a new cluster is halted until
// another node has committed an update.
func measureFailOver(ctx context.Context, c contestant, dir string, random *rand.Rand) (took time.Duration, err error) {
	running, err := c.start(ctx, dir, shortTimeouts)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, running.stop()) }()
	leader, err := waitLeader(ctx, running)
	if err != nil {
		return 0, err
	}
	// When all nodes have applied an update, they know the leader. The random pause makes the halt fall
	// at a random time between two heartbeats.
	if err := waitApplied(ctx, running, 1); err != nil {
		return 0, err
	}
	select {
	case <-time.After(200*time.Millisecond + time.Duration(random.Int64N(int64(200*time.Millisecond)))):
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	halted := make(chan error, 1)
	at := time.Now()
	go func() { halted <- running.halt(leader) }()
	_, err = proposeFirst(ctx, running, leader)
	took = time.Since(at)
	return took, errors.Join(err, <-halted)
}
