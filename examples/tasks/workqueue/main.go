// Command workqueue puts a job into a queue, or works on the jobs of the queue.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

func main() {
	servers := flag.String("zk", "127.0.0.1:2181", "ZooKeeper servers, host:port,...")
	put := flag.String("put", "", "job to put into the queue; otherwise work")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	conn, _, err := zkdial.Connect(strings.Split(*servers, ","), 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	// After five failed attempts a job becomes a dead letter.
	jobs, err := queue.New(conn, "/jobs", queue.WithMaxAttempts(5))
	if err != nil {
		log.Fatal(err)
	}
	defer jobs.Close()
	if *put != "" {
		_, err = jobs.Put(ctx, []byte(*put))
	} else {
		err = work(ctx, jobs)
	}
	if err != nil {
		log.Print(err)
	}
}

// work takes jobs until ctx is done. Any number of processes can do so. A job is acknowledged if do returns nil, and
// returned to the queue otherwise.
func work(ctx context.Context, jobs *queue.Queue) error {
	return jobs.Handle(ctx, func(ctx context.Context, item *queue.Item) error {
		return do(ctx, string(item.Data()))
	})
}

// do must return soon after ctx is done: another process can then take the job. It can run twice
// for one job, for example if the process crashes before Ack.
func do(ctx context.Context, job string) error {
	fmt.Println("doing", job)
	return ctx.Err()
}
