// Command workers divides eight parts of some work among workers that join and leave. Two workers
// never hold the same part, and no part remains without a worker.
//
//	go run ./examples/workers                       # three workers on an embedded server
//	go run ./examples/workers --zk localhost:2181
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes/group"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func main() {
	servers := flag.String("zk", "", "ZooKeeper servers, host:port,...; by default an embedded server")
	flag.Parse()
	if err := run(context.Background(), *servers, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// assignment records the worker of each part.
type assignment struct {
	mu      sync.Mutex
	workers map[string]string // by part
	changed chan struct{}     // contains an element after a change
}

// set records the worker of a part. The worker is empty if the part is not assigned.
func (a *assignment) set(part, worker string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if worker == "" {
		delete(a.workers, part)
	} else {
		a.workers[part] = worker
	}
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// await waits until a number of workers hold all parts, and prints the parts of each worker.
func (a *assignment) await(ctx context.Context, parts, workers int, out io.Writer) error {
	for {
		a.mu.Lock()
		byWorker := map[string][]string{}
		for part, worker := range a.workers {
			byWorker[worker] = append(byWorker[worker], part)
		}
		complete := len(a.workers) == parts && len(byWorker) == workers
		a.mu.Unlock()
		if complete {
			names := make([]string, 0, len(byWorker))
			for name := range byWorker {
				slices.Sort(byWorker[name])
				names = append(names, name)
			}
			slices.Sort(names)
			for _, name := range names {
				fmt.Fprintf(out, "  %s: %s\n", name, strings.Join(byWorker[name], " "))
			}
			return nil
		}
		select {
		case <-a.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func run(ctx context.Context, servers string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if servers == "" {
		server, err := zktest.NewServer()
		if err != nil {
			return err
		}
		defer server.Close()
		servers = server.Addr()
	}

	parts := []string{"p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"}
	a := &assignment{workers: map[string]string{}, changed: make(chan struct{}, 1)}
	var workers sync.WaitGroup
	var shares []*group.Share
	for i, name := range []string{"ada", "bob", "cyn"} {
		conn, _, err := zkdial.Connect(strings.Split(servers, ","), 4*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		p, err := group.NewPartitioner(conn, "/workers")
		if err != nil {
			return err
		}
		if i == 0 {
			if err := p.SetParts(ctx, parts); err != nil {
				return err
			}
		}
		share, err := p.Join(ctx, name, time.Second)
		if err != nil {
			return err
		}
		shares = append(shares, share)
		workers.Go(func() { work(ctx, share, a) })
		fmt.Fprintln(out, name, "joins:")
		if err := a.await(ctx, len(parts), i+1, out); err != nil {
			return err
		}
	}
	leaving := shares[0]
	err := leave(leaving)
	fmt.Fprintln(out, leaving.ID(), "leaves:")
	err = errors.Join(err, a.await(ctx, len(parts), 2, out))
	for _, share := range shares[1:] {
		err = errors.Join(err, leave(share))
	}
	workers.Wait()
	return err
}

// leave closes a share, and waits until its parts are released.
func leave(share *group.Share) error {
	_ = share.Close() // returns after two seconds at the latest
	<-share.Done()
	return share.Close()
}

// work works on the parts of a share until the share is closed.
func work(ctx context.Context, share *group.Share, a *assignment) {
	var parts sync.WaitGroup
	defer parts.Wait()
	for part := range share.Parts() {
		parts.Go(func() {
			a.set(part.Name(), share.ID())
			select { // here the program works on the part
			case <-part.Wanted():
			case <-part.Done():
			}
			a.set(part.Name(), "")
			_ = part.Release()
		})
	}
}
