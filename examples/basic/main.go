// Command basic is the smallest useful candidate: it takes part in an election,
// acts while it leads, and resigns on Ctrl-C. Start it several times:
//
//	go run ./examples/basic --zk localhost:2181
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
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
)

func main() {
	servers := flag.String("zk", "localhost:2181", "ZooKeeper servers, host:port,...")
	node := flag.String("election", "/election", "election node; created where it is missing")
	flag.Parse()
	if err := run(strings.Split(*servers, ","), *node); err != nil {
		log.Fatal(err)
	}
}

func run(servers []string, node string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	// The connection is yours: the library neither opens nor closes any.
	conn, _, err := zk.Connect(servers, 4*time.Second, zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	defer conn.Close()

	// So is the election node.
	_, err = conn.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("create %s: %w", node, err)
	}

	candidate, err := leaderelection.NewElection(conn, node,
		leaderelection.WithClientName(fmt.Sprintf("basic-%d", os.Getpid())))
	if err != nil {
		return err
	}
	go candidate.ElectLeader()

	for {
		select {
		case status, ok := <-candidate.Status():
			switch {
			case !ok:
				return nil // the candidacy is over
			case status.Err != nil:
				return status.Err
			}
			fmt.Println(status)
			if status.Role == leaderelection.Leader {
				go lead(status.Leadership)
			}
		case <-ctx.Done():
			fmt.Println("resigning")
			return candidate.Resign()
		}
	}
}

// lead does what only one may do at a time, until the leadership is over.
func lead(leadership *leaderelection.Leadership) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Println("working as leader, token", leadership.Token())
		case <-leadership.Done():
			fmt.Println("not leader any more:", leadership.Err())
			return
		}
	}
}
