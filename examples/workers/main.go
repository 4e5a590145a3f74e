// Command workers divides eight parts of some work among workers that come and go. No
// part is ever held by two, and none stays without a worker.
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

	"github.com/go-leaderelection/leaderelection/examples/internal/ensemble"
	"github.com/go-leaderelection/leaderelection/recipes/group"
)

func main() {
	servers := flag.String("zk", "", "ZooKeeper servers, host:port,...; none: an embedded server")
	flag.Parse()
	if err := run(context.Background(), *servers, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// board shows who has which part.
type board struct {
	mu     sync.Mutex
	holder map[string]string
	moved  chan struct{} // capacity 1
}

func (b *board) set(part, worker string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if worker == "" {
		delete(b.holder, part)
	} else {
		b.holder[part] = worker
	}
	select {
	case b.moved <- struct{}{}:
	default:
	}
}

// await waits until all parts are held, by as many workers as given, and shows them.
func (b *board) await(ctx context.Context, parts, workers int, out io.Writer) error {
	for {
		b.mu.Lock()
		of := map[string][]string{}
		for part, worker := range b.holder {
			of[worker] = append(of[worker], part)
		}
		complete := len(b.holder) == parts && len(of) == workers
		b.mu.Unlock()
		if complete {
			names := make([]string, 0, len(of))
			for name := range of {
				slices.Sort(of[name])
				names = append(names, name)
			}
			slices.Sort(names)
			for _, name := range names {
				fmt.Fprintf(out, "  %s: %s\n", name, strings.Join(of[name], " "))
			}
			return nil
		}
		select {
		case <-b.moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func run(ctx context.Context, servers string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	e, err := ensemble.Open(servers)
	if err != nil {
		return err
	}
	defer e.Close()

	parts := []string{"p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"}
	b := &board{holder: map[string]string{}, moved: make(chan struct{}, 1)}
	var workers sync.WaitGroup
	var shares []*group.Share
	for i, name := range []string{"ada", "bob", "cyn"} {
		conn, err := e.Connect()
		if err != nil {
			return err
		}
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
		workers.Go(func() { work(ctx, share, b) })
		fmt.Fprintln(out, name, "has come:")
		if err := b.await(ctx, len(parts), i+1, out); err != nil {
			return err
		}
	}
	leaving := shares[0]
	err = leaving.Close(ctx)
	fmt.Fprintln(out, leaving.ID(), "has gone:")
	err = errors.Join(err, b.await(ctx, len(parts), 2, out))
	for _, share := range shares[1:] {
		err = errors.Join(err, share.Close(ctx))
	}
	workers.Wait()
	return err
}

// work does the parts of a share until that is closed.
func work(ctx context.Context, share *group.Share, b *board) {
	var parts sync.WaitGroup
	defer parts.Wait()
	for part := range share.Parts() {
		parts.Go(func() {
			b.set(part.Name(), share.ID())
			select { // the work: whatever goes on while the part is ours
			case <-part.Wanted():
			case <-part.Done():
			}
			b.set(part.Name(), "")
			_ = part.Release(context.WithoutCancel(ctx))
		})
	}
}
