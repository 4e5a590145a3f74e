package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func init() {
	flag.BoolFunc("embedded", "show on an embedded server that a former holder can no longer write, and exit", func(string) error {
		if err := loseLock(context.Background()); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
		return nil
	})
}

// loseLock expires the session of a holder. It requires that the next write of the former holder is
// rejected.
func loseLock(ctx context.Context) error {
	server, err := zktest.NewServer()
	if err != nil {
		return err
	}
	defer server.Close()
	ada, _, err := server.Connect(4 * time.Second)
	if err != nil {
		return err
	}
	defer ada.Close()
	bob, _, err := server.Connect(4 * time.Second)
	if err != nil {
		return err
	}
	defer bob.Close()
	if _, err := ada.Create(total, []byte("0"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		return err
	}

	first, err := acquire(ctx, ada)
	if err != nil {
		return err
	}
	sum, err := add(ada, first)
	if err != nil {
		return err
	}
	fmt.Printf("ada has the lock, token %d, and writes total %d\n", first.Token(), sum)
	if err := server.ExpireSession(ada.SessionID()); err != nil {
		return err
	}
	fmt.Println("the session of ada expires while ada has the lock")
	second, err := acquire(ctx, bob)
	if err != nil {
		return err
	}
	fmt.Printf("bob has the lock, token %d\n", second.Token())
	<-first.Done()
	_, err = add(bob, first) // reads over bob's connection, and writes with the former holder's hold
	fmt.Println("ada writes without the lock:", err)
	if sum, err = add(bob, second); err != nil {
		return err
	}
	fmt.Println("bob writes total", sum)
	return second.Release()
}

func acquire(ctx context.Context, conn *zk.Conn) (*lock.Hold, error) {
	mutex, err := lock.NewMutex(conn, "/locks/total")
	if err != nil {
		return nil, err
	}
	return mutex.Lock(ctx)
}
