// Command changefeed runs an election of two candidates on a store with a changefeed. They print
// their roles: one of them becomes leader and hands over to the other, which resigns, so that the
// first becomes leader again.
//
//	go run ./examples/changefeed                  # in memory
//	go run ./examples/changefeed --store postgres://user@host/database
//
// Package storeurl lists the stores. A program that always uses the same store only imports the
// package of that store.
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
	store := flag.String("store", "memory:", "address of the store, which begins with "+strings.Join(storeurl.Schemes(), ":, ")+":")
	heartbeat := flag.Duration("heartbeat", 250*time.Millisecond, "time between two heartbeats of the leader")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := runElection(ctx, *store, *heartbeat, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// candidate is a candidate whose statuses are printed.
type candidate struct {
	election *changefeed.Election
	store    changefeed.Store
	name     string
	elected  chan struct{} // receives a value when the candidate becomes the leader
	running  sync.WaitGroup
}

// printFunc prints a line.
type printFunc func(format string, args ...any)

// startCandidate starts a candidate, which prints its role whenever the role changes.
func startCandidate(ctx context.Context, store changefeed.Store, name string, heartbeat time.Duration, print printFunc) (*candidate, error) {
	election, err := changefeed.NewElection(store,
		changefeed.WithContext(ctx), changefeed.WithID(name), changefeed.WithHeartbeat(heartbeat))
	if err != nil {
		return nil, err
	}
	c := &candidate{election: election, store: store, name: name, elected: make(chan struct{}, 1)}
	c.running.Go(func() {
		if err := election.ElectLeader(); err != nil {
			print("%s: the candidacy is over: %v", name, err)
		}
	})
	c.running.Go(func() {
		role := leaderelection.Role(-1)
		for status := range election.Status() {
			if status.Role != role {
				role = status.Role
				print("%s: state changed to %v", name, role)
			}
			if role == leaderelection.Leader {
				select {
				case c.elected <- struct{}{}:
				default:
				}
			}
		}
	})
	return c, nil
}

// runElection runs an election of two candidates, until both have resigned or ctx is done.
func runElection(ctx context.Context, store string, heartbeat time.Duration, out io.Writer) error {
	opener, err := storeurl.Open(ctx, storeurl.Config{URL: store, Election: "example"})
	if err != nil {
		return err
	}
	defer opener.Close()
	var mu sync.Mutex
	print := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
	}
	candidates := make([]*candidate, 2)
	for i, name := range []string{"feedA", "feedB"} {
		s, err := opener.NewStore()
		if err != nil {
			return err
		}
		defer s.Close()
		if candidates[i], err = startCandidate(ctx, s, name, heartbeat, print); err != nil {
			return err
		}
		defer candidates[i].running.Wait()
		defer candidates[i].election.Resign()
	}
	return transferLeadership(ctx, candidates[0], candidates[1], print)
}

// transferLeadership makes the leader hand over to the other candidate, which then resigns.
func transferLeadership(ctx context.Context, a, b *candidate, print printFunc) error {
	select {
	case <-a.elected:
	case <-b.elected:
		a, b = b, a
	case <-ctx.Done():
		return nil
	}
	isLeader := func(c *candidate) bool { return c.election.Current().Role == leaderelection.Leader }
	print("%s is leader: %v, %s is leader: %v", a.name, isLeader(a), b.name, isLeader(b))
	print("%s hands over to %s", a.name, b.name)
	if err := changefeed.Transfer(ctx, a.store, b.name); err != nil {
		return err
	}
	select {
	case <-b.elected:
	case <-ctx.Done():
		return nil
	}
	print("%s resigns", b.name)
	if err := b.election.Resign(); err != nil {
		return err
	}
	select {
	case <-a.elected:
	case <-ctx.Done():
		return nil
	}
	print("%s resigns", a.name)
	return a.election.Resign()
}
