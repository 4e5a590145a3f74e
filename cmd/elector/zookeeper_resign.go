package main

import (
	"context"

	"github.com/go-leaderelection/leaderelection"
)

// ask asks a candidate by a request in the election node's data.
func (z *zookeeper) ask(ctx context.Context, candidate place) error {
	if err := z.ready(ctx); err != nil {
		return err
	}
	return leaderelection.AskToResign(z.conn, z.election, candidate.ID, append(z.options(), leaderelection.WithContext(ctx))...)
}
