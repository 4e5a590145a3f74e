package main

import (
	"context"

	"github.com/go-leaderelection/leaderelection"
)

// askToResign writes a request to the data of the election node, and waits.
func (z *zookeeper) askToResign(ctx context.Context, candidate place) error {
	if err := z.ready(ctx); err != nil {
		return err
	}
	return leaderelection.AskToResign(z.conn, z.election, candidate.ID, append(z.options(), leaderelection.WithContext(ctx))...)
}
