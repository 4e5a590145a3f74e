package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func init() {
	flag.BoolFunc("embedded", "show on an embedded server how jobs survive a worker and its failures, and exit", func(string) error {
		if err := surviveWorker(context.Background()); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
		return nil
	})
}

// surviveWorker processes three jobs. The session of the first worker expires during a job, which the
// second worker then processes. One job always fails and becomes a dead letter.
func surviveWorker(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	server, err := zktest.NewServer()
	if err != nil {
		return err
	}
	defer server.Close()
	const attempts = 2
	var workers [2]*queue.Queue
	var conns [2]*zk.Conn
	for i := range workers {
		if conns[i], _, err = server.Connect(4 * time.Second); err != nil {
			return err
		}
		defer conns[i].Close()
		if workers[i], err = queue.New(conns[i], "/jobs", queue.WithMaxAttempts(attempts)); err != nil {
			return err
		}
		defer workers[i].Close()
	}
	ada, bob := workers[0], workers[1]
	if _, err := conns[1].Create("/results", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		return err
	}
	for _, job := range []string{"job-1", "job-2", "bad-job"} {
		if _, err := bob.Put(ctx, []byte(job)); err != nil {
			return err
		}
	}

	item, err := ada.Take(ctx)
	if err != nil {
		return err
	}
	if err := server.ExpireSession(conns[0].SessionID()); err != nil { // as if the network of ada were partitioned
		return err
	}
	<-item.Context().Done()
	fmt.Printf("ada loses %s: %v\n", item.Data(), context.Cause(item.Context()))
	for range 2 + attempts { // the number of deliveries of the jobs
		item, err := bob.Take(ctx)
		if err != nil {
			return err
		}
		job := string(item.Data())
		if job == "bad-job" {
			fmt.Println("bob returns", job)
			// Returns the job for another attempt, or makes it a dead letter after the last one.
			err = item.Return(errors.New("cannot be done"))
		} else {
			fmt.Println("bob does", job)
			// The result is written in the transaction of the acknowledgement, so there is exactly one,
			// even if the job was started several times.
			err = item.Ack(&zk.CreateRequest{Path: "/results/" + job, Acl: zk.WorldACL(zk.PermAll)})
		}
		if err != nil {
			return err
		}
	}
	letters, err := bob.DeadLetters(ctx)
	for _, l := range letters {
		fmt.Printf("dead letter: %s: %s, after %d attempts\n", l.Parts[0], l.Reason, l.Attempts)
	}
	return err
}
