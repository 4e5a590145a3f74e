// Command changefeed holds an election of two feeds on a store that tells of its changes.
// They print what they become: one leads, hands over to the other, and when that one has
// resigned it leads again.
//
//	go run ./examples/changefeed                  # in memory
//	go run ./examples/changefeed --store postgres://user@host/database
//
// Package storeurl lists the stores. A program that knows its store imports that store's
// package alone.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storeurl"
)

func main() {
	store := flag.String("store", "memory:", "where to keep the record: an address that begins with "+strings.Join(storeurl.Schemes(), ":, ")+":")
	heartbeat := flag.Duration("heartbeat", 250*time.Millisecond, "how often a leader writes it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *store, *heartbeat, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// feed is one that takes part.
type feed struct {
	*changefeed.Election
	name   string
	leads  chan struct{} // gets a value when it leads
	reader sync.WaitGroup
}

// start has a feed take part, and print what it becomes.
func start(ctx context.Context, store changefeed.Store, name string, heartbeat time.Duration, print func(string, ...any)) (*feed, error) {
	election, err := changefeed.NewElection(store,
		changefeed.WithContext(ctx), changefeed.WithID(name), changefeed.WithHeartbeat(heartbeat))
	if err != nil {
		return nil, err
	}
	f := &feed{Election: election, name: name, leads: make(chan struct{}, 1)}
	f.reader.Go(func() {
		if err := election.ElectLeader(); err != nil {
			print("%s: the candidacy is over: %v", name, err)
		}
	})
	f.reader.Go(func() {
		role := leaderelection.Role(-1)
		for status := range election.Status() {
			if status.Role != role {
				role = status.Role
				print("%s: state changed to %v", name, role)
			}
			if role == leaderelection.Leader {
				select {
				case f.leads <- struct{}{}:
				default:
				}
			}
		}
	})
	return f, nil
}

// run plays the story, and ends early with ctx.
func run(ctx context.Context, store string, heartbeat time.Duration, out io.Writer) error {
	opened, err := storeurl.Open(ctx, storeurl.Config{URL: store, Election: "example"})
	if err != nil {
		return err
	}
	defer opened.Close()
	var mu sync.Mutex
	print := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
	}
	feeds := make([]*feed, 2)
	for i, name := range []string{"feedA", "feedB"} {
		s, err := opened.New()
		if err != nil {
			return err
		}
		defer s.Close()
		if feeds[i], err = start(ctx, s, name, heartbeat, print); err != nil {
			return err
		}
		defer feeds[i].reader.Wait()
		defer feeds[i].Resign()
	}
	return story(ctx, feeds[0], feeds[1], print)
}

// story has leadership go from one to the other and back.
func story(ctx context.Context, a, b *feed, print func(string, ...any)) error {
	select { // whoever it is
	case <-a.leads:
	case <-b.leads:
		a, b = b, a
	case <-ctx.Done():
		return nil
	}
	leadership := a.Current().Leadership
	print("%s is leader: %v, %s is leader: %v", a.name, leadership != nil, b.name, b.Current().Role == leaderelection.Leader)
	print("%s hands over to %s", a.name, b.name)
	if err := a.Elect(ctx, b.name); err != nil {
		return err
	}
	select {
	case <-b.leads:
	case <-ctx.Done():
		return nil
	}
	print("%s resigns", b.name)
	if err := b.Resign(); err != nil {
		return err
	}
	select {
	case <-a.leads:
	case <-ctx.Done():
		return nil
	}
	print("%s resigns", a.name)
	return a.Resign()
}
