// Command config keeps the znodes below /config in memory, and prints each change.
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

	"github.com/go-leaderelection/leaderelection/recipes/cache"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

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
	config, err := cache.New(conn, "/config", cache.Subtree)
	if err != nil {
		log.Fatal(err)
	}
	defer config.Close()
	select {
	case <-config.Filled(): // all existing znodes were read
	case <-config.Done():
		log.Fatal(config.Err())
	case <-ctx.Done():
		return
	}
	if node, found := config.Get("/config/limit"); found { // from memory
		fmt.Printf("starting with limit %s\n", node.Data)
	}
	for {
		select {
		case event, open := <-config.Events():
			if !open {
				log.Fatal(config.Err())
			}
			if event.Path != "" { // otherwise Stale or Fresh: the connection was lost or restored
				fmt.Printf("%v %s %s\n", event.Kind, event.Path, event.Node.Data)
			}
		case <-ctx.Done():
			return
		}
	}
}
