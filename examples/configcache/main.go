// Command configcache keeps the configuration of a program in memory: reads send no requests, and
// changes are delivered as events. An operator changes the configuration while the program runs.
//
//	go run ./examples/configcache                       # on an embedded server
//	go run ./examples/configcache --zk localhost:2181
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/examples/internal/ensemble"
	"github.com/go-leaderelection/leaderelection/recipes/cache"
)

const config = "/configcache"

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
	operator, err := e.Connect()
	if err != nil {
		return err
	}
	conn, err := e.Connect()
	if err != nil {
		return err
	}
	if err := write(operator, config, ""); err != nil {
		return err
	}
	if err := write(operator, config+"/rate", "10"); err != nil {
		return err
	}

	c, err := cache.New(conn, config, cache.Subtree)
	if err != nil {
		return err
	}
	defer c.Close()
	<-c.Filled()
	rate, _ := c.Get(config + "/rate")
	fmt.Fprintf(out, "from memory: rate = %s\n", rate.Data)

	for path, value := range map[string]string{config + "/rate": "20", config + "/burst": "5"} {
		if err := write(operator, path, value); err != nil {
			return err
		}
	}
	if err := c.Sync(ctx); err != nil { // the cache now contains all earlier writes
		return err
	}
	for _, name := range []string{"rate", "burst"} {
		node, ok := c.Get(config + "/" + name)
		fmt.Fprintf(out, "from memory: %s = %s %t\n", name, node.Data, ok)
	}
	// Events that were not received are combined: there is one event for each znode.
	for left := 3; left > 0; {
		event := <-c.Events()
		fmt.Fprintf(out, "event: %v %s %s\n", event.Kind, event.Path, event.Node.Data)
		if event.Path != "" { // otherwise Stale or Fresh: the connection was lost or restored
			left--
		}
	}
	return errors.Join(operator.Delete(config+"/rate", -1), operator.Delete(config+"/burst", -1), operator.Delete(config, -1))
}

func write(conn *zk.Conn, path, value string) error {
	_, err := conn.Create(path, []byte(value), 0, zk.WorldACL(zk.PermAll))
	if errors.Is(err, zk.ErrNodeExists) {
		_, err = conn.Set(path, []byte(value), -1)
	}
	return err
}
