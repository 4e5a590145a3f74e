// Command cron runs a job at most once in a period, on one of the machines that start it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

func main() {
	servers := flag.String("zk", "127.0.0.1:2181", "ZooKeeper servers, host:port,...")
	period := flag.Duration("period", 23*time.Hour, "at most one run in this time")
	flag.Parse()
	if err := run(strings.Split(*servers, ","), *period); err != nil {
		log.Fatal(err)
	}
}

func run(servers []string, period time.Duration) error {
	conn, _, err := zkdial.Connect(servers, 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	daily, err := lock.NewPeriod(conn, "/jobs/invoices", period)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hold, err := daily.Try(ctx)
	switch {
	case errors.Is(err, lock.ErrHeld), errors.Is(err, lock.ErrEarly):
		fmt.Println("the job does not run here:", err)
		return nil
	case err != nil:
		return err
	}
	return errors.Join(sendInvoices(hold.Context()), hold.Release())
}

// sendInvoices is the job. It must return soon after ctx is done, because another machine may then hold the lock.
func sendInvoices(ctx context.Context) error {
	fmt.Println("the job runs")
	return ctx.Err()
}
