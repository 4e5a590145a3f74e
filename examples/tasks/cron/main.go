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

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

func main() {
	servers := flag.String("zk", "127.0.0.1:2181", "ZooKeeper servers, host:port,...")
	path := flag.String("lock", "", "znode of the lock, one for each job")
	period := flag.Duration("period", 12*time.Hour, "at most one run in this time")
	check := flag.Duration("check", 0, "run nothing, and fail if no run has begun in this time, or the last one has not ended")
	flag.Parse()
	if *path == "" || (*check == 0) == (flag.NArg() == 0) {
		log.Fatal("usage: once-a-day -lock ZNODE [-zk SERVERS] [-period DURATION] PROGRAM [ARGUMENTS]\n" +
			"       once-a-day -lock ZNODE [-zk SERVERS] -check DURATION")
	}
	conn, _, err := zkdial.Connect(strings.Split(*servers, ","), 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	daily, err := lock.NewPeriod(conn, *path, *period)
	done := *path + "-done" // a znode that is written when the job has ended
	if err == nil && *check > 0 {
		err = checkLastRun(conn, daily, done, *check)
	} else if err == nil {
		err = run(daily, done, flag.Args())
	}
	conn.Close()
	if err != nil {
		log.Fatal(err)
	}
}

func run(daily *lock.Period, done string, job []string) error {
	if _, err := exec.LookPath(job[0]); err != nil {
		return err // another machine can run it
	}
	err := daily.Do(context.Background(), func(ctx context.Context, hold *lock.Hold) error {
		// The job is killed if another machine may hold the lock.
		c := exec.CommandContext(ctx, job[0], job[1:]...)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		if err := c.Run(); err != nil {
			return err
		}
		_, err := hold.Multi(&zk.SetDataRequest{Path: done, Version: -1})
		if errors.Is(err, zk.ErrNoNode) {
			_, err = hold.Multi(&zk.CreateRequest{Path: done, Acl: zk.WorldACL(zk.PermAll)})
		}
		return err
	}, lock.WithoutWaiting(), lock.WithWaitLimit(time.Minute))
	if errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrEarly) {
		fmt.Println("the job does not run here:", err)
		return nil
	}
	return err
}

// checkLastRun returns an error if no run has begun within maxAge, on any machine, or the last one has not ended.
func checkLastRun(conn *zk.Conn, daily *lock.Period, done string, maxAge time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	begun, err := daily.Last(ctx)
	switch {
	case err != nil:
		return err
	case begun.IsZero():
		return errors.New("no run has ever begun")
	}
	fmt.Println("the last run began at", begun.Format(time.RFC3339))
	if age := time.Since(begun); age > maxAge {
		return fmt.Errorf("no run has begun for %v", age.Round(time.Second))
	}
	ended, err := zkdial.Retry(ctx, conn, func() (bool, error) {
		exists, stat, err := conn.Exists(done)
		return exists && !time.UnixMilli(stat.Mtime).Before(begun), err
	})
	if err == nil && !ended {
		err = errors.New("the run has not ended, or has failed")
	}
	return err
}
