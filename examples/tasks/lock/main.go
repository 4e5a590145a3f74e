// Command lock adds 1 to a number in ZooKeeper, under a lock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

const total = "/total" // a znode with a number

func main() {
	servers := flag.String("zk", "127.0.0.1:2181", "ZooKeeper servers, host:port,...")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	conn, _, err := zkdial.Connect(strings.Split(*servers, ","), 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	_, err = conn.Create(total, []byte("0"), 0, zk.WorldACL(zk.PermAll))
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		log.Fatal(err)
	}

	mutex, err := lock.NewMutex(conn, "/locks/total")
	if err != nil {
		log.Fatal(err)
	}
	// Do waits until the lock is granted, or ctx is done, and releases it afterwards.
	err = mutex.Do(ctx, func(_ context.Context, hold *lock.Hold) error {
		sum, err := add(conn, hold)
		if err == nil {
			fmt.Printf("total %d, written with token %d\n", sum, hold.Token())
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// add increments the number in the znode total, in a transaction that ZooKeeper applies only while the
// lock is held, and returns the new number. If the lock is lost before that, add returns an error, and
// nothing is written.
func add(conn *zk.Conn, hold *lock.Hold) (int, error) {
	data, _, err := conn.Get(total)
	if err != nil {
		return 0, err
	}
	sum, err := strconv.Atoi(string(data))
	if err != nil {
		return 0, err
	}
	sum++
	_, err = hold.Multi(&zk.SetDataRequest{Path: total, Data: []byte(strconv.Itoa(sum)), Version: -1})
	return sum, err
}
