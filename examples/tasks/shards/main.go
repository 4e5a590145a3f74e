// Command shards works for its share of 64 tenants. Start it several times, with different names.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes/shard"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

func main() {
	servers := flag.String("zk", "127.0.0.1:2181", "ZooKeeper servers, host:port,...")
	name := flag.String("name", "", "name of this worker, the same after a restart")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	conn, _, err := zkdial.Connect(strings.Split(*servers, ","), 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	tenants, err := shard.NewGroup(conn, "/tenants", shard.WithGrace(10*time.Second), shard.WithRestart())
	if err != nil {
		log.Fatal(err)
	}
	// All workers may do so. Nothing is written if nothing changes.
	_, err = tenants.Update(ctx, func(s *shard.Spec) error {
		s.Shards, s.RestartDelay = names(64), time.Minute
		return nil
	})
	if err == nil {
		err = tenants.Run(ctx, *name, work)
	}
	if err != nil {
		log.Print(err)
	}
}

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("tenant-%02d", i))
	}
	return all
}

// work works for one tenant. At most one worker holds the tenant; work must return when ctx is done, within the
// grace period.
func work(ctx context.Context, s *shard.Shard) error {
	fmt.Printf("%s: working, with token %d\n", s.Name(), s.Token())
	<-ctx.Done() // the work for the tenant
	if s.Err() != nil {
		fmt.Printf("%s: lost: %v\n", s.Name(), s.Err())
		return nil
	}
	// The tenant is still ours for the grace period. Whatever is done here must not use ctx.
	var moved *shard.MovedError
	if errors.As(context.Cause(ctx), &moved) {
		fmt.Printf("%s: saved for %s: %s\n", s.Name(), moved.To, moved.Reason)
	}
	return nil
}
