package etcd_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/etcd"
	"github.com/go-leaderelection/leaderelection/elector"
)

// This example is one replica of a program. One replica at a time, the leader, writes a report to etcd.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := runReplica(ctx, "127.0.0.1:2379"); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// runReplica is one replica. It works while it is the leader, and returns when ctx is done.
func runReplica(ctx context.Context, endpoints ...string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialKeepAliveTime: 5 * time.Second})
	if err != nil {
		return err
	}
	defer client.Close()
	candidate, err := etcd.NewElection(client, "/jobs/report", etcd.WithCreateNode(), etcd.WithRejoin())
	if err != nil {
		return err
	}
	return elector.Lead(ctx, candidate, func(ctx context.Context, l *leaderelection.Leadership) error {
		for {
			text := fmt.Sprint("written at ", time.Now(), " with token ", l.Token())
			// etcd applies the write only while this replica is the leader.
			if _, err := candidate.Txn(ctx, l, clientv3.OpPut("/report", text)); err != nil {
				log.Print("not written: ", err)
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done(): // the leadership ends before another replica can lead
				return nil
			}
		}
	})
}
