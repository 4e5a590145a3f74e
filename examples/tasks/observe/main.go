// Command observe prints who leads an election, and warns if there is no leader for too long.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

func main() {
	servers := flag.String("zk", "127.0.0.1:2181", "ZooKeeper servers, host:port,...")
	limit := flag.Duration("limit", 30*time.Second, "how long there may be no leader")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	conn, _, err := zkdial.Connect(strings.Split(*servers, ","), 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	observations, err := leaderelection.Observe(ctx, conn, "/jobs/report")
	if err != nil {
		log.Fatal(err)
	}
	warning := time.NewTimer(*limit) // also while the connection is down
	for {
		select {
		case o, open := <-observations:
			switch {
			case !open:
				return
			case o.Err != nil:
				log.Fatal(o.Err)
			case o.Leader == nil:
				fmt.Println("no leader")
				warning.Reset(*limit)
			default:
				fmt.Printf("%s leads with token %d at %s\n", o.Leader.Name, o.Leader.Token, o.Leader.Value)
				warning.Stop()
			}
		case <-warning.C:
			fmt.Println("WARNING: no leader for", *limit)
		}
	}
}
