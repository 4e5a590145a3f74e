package main

// Three copies of the program at once, for looking on without a ZooKeeper.

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// threeCandidates runs three candidates on a server inside this process. They come
// one after another and leave in the same order, so each of them leads for a while.
func threeCandidates(ctx context.Context, node string) error {
	server, err := zktest.New()
	if err != nil {
		return err
	}
	defer server.Close()

	begin := time.Now()
	names := []string{"ada", "bob", "cyn"}
	errs := make([]error, len(names))
	var candidates sync.WaitGroup
	for i, name := range names {
		comes := begin.Add(time.Duration(i) * time.Second)
		leaves := begin.Add(time.Duration(3500+4000*i) * time.Millisecond)
		candidates.Go(func() { errs[i] = between(ctx, server, node, name, comes, leaves) })
	}
	candidates.Wait()
	return errors.Join(errs...)
}

// between takes part from one time to another, and not when ctx ends before.
func between(ctx context.Context, server *zktest.Server, node, name string, comes, leaves time.Time) error {
	select {
	case <-time.After(time.Until(comes)):
	case <-ctx.Done():
		return nil
	}
	conn, _, err := server.Connect(4 * time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithDeadline(ctx, leaves)
	defer cancel()
	return takePart(ctx, conn, node, name)
}
