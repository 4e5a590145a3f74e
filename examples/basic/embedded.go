package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// runThreeCandidates runs three candidates on an embedded server. They join one after another and resign
// in the same order, so each of them leads for some time.
func runThreeCandidates(ctx context.Context, node string) error {
	server, err := zktest.NewServer()
	if err != nil {
		return err
	}
	defer server.Close()

	start := time.Now()
	names := []string{"ada", "bob", "cyn"}
	errs := make([]error, len(names))
	var candidates sync.WaitGroup
	for i, name := range names {
		join := start.Add(time.Duration(i) * time.Second)
		resign := start.Add(time.Duration(3500+4000*i) * time.Millisecond)
		candidates.Go(func() { errs[i] = runBetween(ctx, server, node, name, join, resign) })
	}
	candidates.Wait()
	return errors.Join(errs...)
}

// runBetween runs a candidate from one time to another, or until ctx is done.
func runBetween(ctx context.Context, server *zktest.Server, node, name string, join, resign time.Time) error {
	select {
	case <-time.After(time.Until(join)):
	case <-ctx.Done():
		return nil
	}
	conn, _, err := server.Connect(4 * time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithDeadline(ctx, resign)
	defer cancel()
	return joinElection(ctx, conn, node, name)
}
