// Command gettingstarted is the program of docs/getting-started.md: several replicas run, and
// one of them at a time writes the time to a znode.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	conn, _, err := zkdial.Connect([]string{"127.0.0.1:2181"}, 4*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if err := run(ctx, conn); err != nil {
		log.Fatal("ended: ", err)
	}
}

// run is one replica. It joins the election, and works while it is the leader.
func run(ctx context.Context, conn *zk.Conn) error {
	candidate, err := leaderelection.NewElection(conn, "/report",
		leaderelection.WithCreateNode(), leaderelection.WithRejoin())
	if err != nil {
		return err
	}
	return elector.Lead(ctx, candidate, work)
}

// work saves the time every second. ctx is done before another replica can lead.
func work(ctx context.Context, l *leaderelection.Leadership) error {
	log.Print("leader with token ", l.Token())
	for ctx.Err() == nil {
		if err := save(l, time.Now().String()); err != nil {
			log.Print("not saved: ", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	log.Print("no longer the leader: ", context.Cause(ctx))
	return nil
}

// save writes text to a znode. ZooKeeper applies the write only while l is valid.
func save(l *leaderelection.Leadership, text string) error {
	const path = "/last-report"
	_, err := l.Multi(&zk.SetDataRequest{Path: path, Data: []byte(text), Version: -1})
	if errors.Is(err, zk.ErrNoNode) {
		_, err = l.Multi(&zk.CreateRequest{Path: path, Data: []byte(text), Acl: zk.WorldACL(zk.PermAll)})
	}
	return err
}
