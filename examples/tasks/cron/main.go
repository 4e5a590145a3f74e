// Command cron runs a program at most once in a period, on one of the machines that start it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

func main() {
	servers := flag.String("zk", "127.0.0.1:2181", "ZooKeeper servers, host:port,...")
	path := flag.String("lock", "", "znode of the lock, one for each job")
	period := flag.Duration("period", 12*time.Hour, "at most one run in this time")
	flag.Parse()
	if *path == "" || flag.NArg() == 0 {
		log.Fatal("usage: cron -lock ZNODE [-zk SERVERS] [-period DURATION] PROGRAM [ARGUMENTS]")
	}
	if _, err := exec.LookPath(flag.Arg(0)); err != nil {
		log.Fatal(err) // another machine can run it
	}
	if err := run(strings.Split(*servers, ","), *path, *period, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(servers []string, path string, period time.Duration, job []string) error {
	conn, _, err := zkdial.Connect(servers, 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	daily, err := lock.NewPeriod(conn, path, period)
	if err != nil {
		return err
	}
	err = daily.Do(context.Background(), func(ctx context.Context, _ *lock.Hold) error {
		// The job is killed if another machine may hold the lock.
		c := exec.CommandContext(ctx, job[0], job[1:]...)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		return c.Run()
	}, lock.WithoutWaiting(), lock.WithWaitLimit(time.Minute))
	if errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrEarly) {
		fmt.Println("the job does not run here:", err)
		return nil
	}
	return err
}
