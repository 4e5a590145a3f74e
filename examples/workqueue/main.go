// Command workqueue processes ten jobs of a queue with three workers. One worker loses its session
// during a job, which another worker then processes. One job always fails and becomes a dead letter.
// The result of each job is written in the transaction of its acknowledgement, so there is exactly
// one result even if the job was started several times.
//
//	go run ./examples/workqueue                     # on an embedded server
//	go run ./examples/workqueue --zk localhost:2181
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/examples/internal/ensemble"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
)

func main() {
	servers := flag.String("zk", "", "ZooKeeper servers, host:port,...; by default an embedded server")
	flag.Parse()
	if err := run(context.Background(), *servers, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

const (
	jobs = 10
	bad  = "job 7" // always fails
)

var config = queue.Config{MaxAttempts: 2}

// worker processes jobs one after another.
type worker struct {
	name    string
	queue   *queue.Queue
	node    string        // parent of the results
	started chan<- string // receives the name of the worker when it starts a job
}

func run(ctx context.Context, servers string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	e, err := ensemble.Open(servers)
	if err != nil {
		return err
	}
	defer e.Close()
	conn, err := e.Connect()
	if err != nil {
		return err
	}
	node := "/workqueue-" + rand.Text()
	for _, dir := range []string{node, node + "/results"} {
		if _, err := conn.Create(dir, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			return err
		}
	}

	producer, err := queue.New(conn, node+"/jobs", config)
	if err != nil {
		return err
	}
	defer producer.Close(context.WithoutCancel(ctx))
	for i := range jobs {
		if err := producer.Put(ctx, fmt.Appendf(nil, "job %d", i+1)); err != nil {
			return err
		}
	}

	started := make(chan string, config.MaxAttempts*jobs)
	working, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	var first *zk.Conn
	for _, name := range []string{"ada", "bob", "cyn"} {
		conn, err := e.Connect()
		if err != nil {
			return err
		}
		if first == nil {
			first = conn
		}
		q, err := queue.New(conn, node+"/jobs", config)
		if err != nil {
			return err
		}
		w := &worker{name, q, node + "/results", started}
		all.Go(func() { w.work(working, out) })
	}
	count := 0
	for by := ""; by != "ada"; count++ {
		select {
		case by = <-started:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if e.Expire(first) { // as if ada were partitioned
		fmt.Fprintln(out, "the session of ada expires")
	}

	if err := waitUntilEmpty(ctx, conn, node+"/jobs"); err != nil {
		return err
	}
	stop()
	all.Wait()
	letters, err := producer.DeadLetters(ctx)
	if err != nil {
		return err
	}
	for _, l := range letters {
		fmt.Fprintf(out, "dead letter: %s: %s, after %d attempts\n", l.Parts[0], l.Reason, l.Attempts)
	}
	names, _, err := conn.Children(node + "/results")
	fmt.Fprintf(out, "%d jobs were started %d times and have %d results\n", jobs, count+len(started), len(names))
	return err
}

// waitUntilEmpty waits until each job is done or a dead letter.
func waitUntilEmpty(ctx context.Context, conn *zk.Conn, node string) error {
	for {
		pending, _, changed, err := conn.ChildrenW(node)
		if err != nil || len(pending) == 0 {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// work processes jobs until ctx is done or the queue fails.
func (w *worker) work(ctx context.Context, out io.Writer) {
	defer w.queue.Close(context.WithoutCancel(ctx))
	for item := range w.queue.Consume(ctx) {
		job := string(item.Data())
		w.started <- w.name
		err := process(item.Context(), job)
		if err == nil {
			result := w.node + "/" + strings.ReplaceAll(job, " ", "-")
			err = item.Ack(&zk.CreateRequest{Path: result, Data: []byte(w.name), Acl: zk.WorldACL(zk.PermAll)})
		} else {
			err = item.Return(err) // for another attempt, or as a dead letter
		}
		if err != nil {
			fmt.Fprintf(out, "%s loses %s: %v\n", w.name, job, err)
		}
	}
}

// process is the work.
func process(ctx context.Context, job string) error {
	if job == bad {
		return errors.New("cannot be done")
	}
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
