// Command workqueue has three workers do ten jobs from one queue. One worker loses its
// session in the middle of a job, which another then does; one job can never be done and
// is set aside. The result of each job is written along with its acknowledgement, so that
// there is one result however often the job was begun.
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
	servers := flag.String("zk", "", "ZooKeeper servers, host:port,...; none: an embedded server")
	flag.Parse()
	if err := run(context.Background(), *servers, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

const (
	jobs = 10
	bad  = "job 7" // nobody can do it
)

var config = queue.Config{MaxAttempts: 2}

// worker takes jobs and does them, one at a time.
type worker struct {
	name  string
	queue *queue.Queue
	node  string        // of the results
	begun chan<- string // by whom a job is begun
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

	boss, err := queue.New(conn, node+"/jobs", config)
	if err != nil {
		return err
	}
	defer boss.Close(context.WithoutCancel(ctx))
	for i := range jobs {
		if err := boss.Put(ctx, fmt.Appendf(nil, "job %d", i+1)); err != nil {
			return err
		}
	}

	begun := make(chan string, config.MaxAttempts*jobs)
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
		w := &worker{name, q, node + "/results", begun}
		all.Go(func() { w.work(working, out) })
	}
	count := 0
	for by := ""; by != "ada"; count++ {
		select {
		case by = <-begun:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if e.Expire(first) { // as if ada had been cut off
		fmt.Fprintln(out, "the session of ada expires")
	}

	if err := empty(ctx, conn, node+"/jobs"); err != nil {
		return err
	}
	stop()
	all.Wait()
	letters, err := boss.DeadLetters(ctx)
	if err != nil {
		return err
	}
	for _, l := range letters {
		fmt.Fprintf(out, "set aside: %s: %s, after %d attempts\n", l.Parts[0], l.Reason, l.Attempts)
	}
	names, _, err := conn.Children(node + "/results")
	fmt.Fprintf(out, "%d jobs were begun %d times and have %d results\n", jobs, count+len(begun), len(names))
	return err
}

// empty waits until all jobs are done or set aside.
func empty(ctx context.Context, conn *zk.Conn, node string) error {
	for {
		left, _, changed, err := conn.ChildrenW(node)
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// work does jobs until the context ends or ZooKeeper refuses what the queue needs.
func (w *worker) work(ctx context.Context, out io.Writer) {
	settling := context.WithoutCancel(ctx) // what is done is acknowledged, also at the end
	defer w.queue.Close(settling)
	for item := range w.queue.Consume(ctx) {
		job := string(item.Data())
		w.begun <- w.name
		err := do(item.Context(), job)
		if err == nil {
			result := w.node + "/" + strings.ReplaceAll(job, " ", "-")
			err = item.Ack(settling, &zk.CreateRequest{Path: result, Data: []byte(w.name), Acl: zk.WorldACL(zk.PermAll)})
		} else {
			err = item.Return(settling, err) // for another try, or to be set aside
		}
		if err != nil {
			fmt.Fprintf(out, "%s loses %s: %v\n", w.name, job, err)
		}
	}
}

// do is the work.
func do(ctx context.Context, job string) error {
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
