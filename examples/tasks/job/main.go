// Command job runs a job at an interval, on one of its replicas.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

func main() {
	servers := flag.String("zk", "127.0.0.1:2181", "ZooKeeper servers, host:port,...")
	every := flag.Duration("every", time.Minute, "interval between two runs of the job")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	conn, _, err := zkdial.Connect(strings.Split(*servers, ","), 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	candidate, err := leaderelection.NewElection(conn, "/jobs/report",
		leaderelection.WithCreateNode(), leaderelection.WithRejoin())
	if err != nil {
		log.Fatal(err)
	}
	err = elector.Lead(ctx, candidate, func(ctx context.Context, l *leaderelection.Leadership) error {
		log.Print("leader with token ", l.Token())
		for {
			if err := job(ctx); err != nil {
				log.Print("job: ", err)
			}
			select {
			case <-time.After(*every):
			case <-ctx.Done(): // before another replica can lead
				return nil
			}
		}
	})
	if err != nil {
		log.Fatal("ended: ", err)
	}
}

// job must return soon after ctx is done.
func job(ctx context.Context) error {
	log.Print("job runs")
	return ctx.Err()
}
