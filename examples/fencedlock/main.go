// Command fencedlock demonstrates a lock with a fencing token. Two workers add to an account under a
// lock. One of them loses its session while it holds the lock. Its next write is rejected, because
// each write is a transaction that ZooKeeper applies only while the lock is held.
//
//	go run ./examples/fencedlock                       # on an embedded server
//	go run ./examples/fencedlock --zk localhost:2181
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/examples/internal/ensemble"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

const account = "/fencedlock-account"

func main() {
	servers := flag.String("zk", "", "ZooKeeper servers, host:port,...; by default an embedded server")
	flag.Parse()
	if err := run(context.Background(), *servers, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, servers string, out io.Writer) error {
	e, err := ensemble.Open(servers)
	if err != nil {
		return err
	}
	defer e.Close()
	ada, err := e.Connect()
	if err != nil {
		return err
	}
	bob, err := e.Connect()
	if err != nil {
		return err
	}
	if _, err := ada.Create(account, []byte("0"), 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return err
	}

	first, err := acquire(ctx, ada)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ada has the lock, token %d, and adds 10\n", first.Token())
	if err := add(bob, first, 10); err != nil {
		return err
	}
	if e.Expire(ada) {
		fmt.Fprintln(out, "the session of ada expires while ada holds the lock")
	} else if err := first.Release(); err != nil {
		return err
	}

	second, err := acquire(ctx, bob)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "bob has the lock, with a greater token: %t\n", second.Token() > first.Token())
	<-first.Done()
	fmt.Fprintln(out, "ada has lost the lock:", first.Err())
	fmt.Fprintln(out, "ada adds 100 without the lock:", add(bob, first, 100))
	fmt.Fprintln(out, "bob adds 1:", add(bob, second, 1))
	if err := second.Release(); err != nil {
		return err
	}
	balance, _, err := bob.Get(account)
	fmt.Fprintf(out, "the balance is %s\n", balance)
	return errors.Join(err, bob.Delete(account, -1))
}

func acquire(ctx context.Context, conn *zk.Conn) (*lock.Hold, error) {
	m, err := lock.NewMutex(conn, "/fencedlock")
	if err != nil {
		return nil, err
	}
	return m.Lock(ctx)
}

// add reads the account over conn, and writes the new balance in a transaction over the connection of
// the holder. ZooKeeper applies the transaction only while the lock is held.
func add(conn *zk.Conn, hold *lock.Hold, amount int) error {
	data, stat, err := conn.Get(account)
	if err != nil {
		return err
	}
	balance, err := strconv.Atoi(string(data))
	if err != nil {
		return err
	}
	_, err = hold.Multi(&zk.SetDataRequest{Path: account, Data: []byte(strconv.Itoa(balance + amount)), Version: stat.Version})
	return err
}
