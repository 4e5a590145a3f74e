package cache_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/cache"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// A program reads its settings from memory at any time, and is notified when they change.
func Example() {
	srv, err := zktest.NewServer() // a test server; your program connects to its own ensemble instead
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, _, err := srv.Connect(10 * time.Second)
	if err != nil {
		log.Fatal(err)
	}
	put := func(path, value string) {
		if _, err := conn.Create(path, []byte(value), 0, zk.WorldACL(zk.PermAll)); err != nil {
			log.Fatal(err)
		}
	}
	put("/config", "")
	put("/config/color", "red")

	config, err := cache.New(conn, "/config", cache.Children)
	if err != nil {
		log.Fatal(err)
	}
	defer config.Close()
	put("/config/size", "7")
	if err := config.Sync(context.Background()); err != nil { // after Sync, the cache contains all settings
		log.Fatal(err)
	}
	names, _ := config.Children("/config")
	size, _ := config.Get("/config/size")
	fmt.Println(names, string(size.Data))

	for event := range config.Events() {
		switch event.Kind {
		case cache.Created, cache.Changed:
			if event.Path == "/config/color" {
				fmt.Println("color is", string(event.Node.Data))
				if event.Kind == cache.Changed {
					return
				}
			}
		case cache.Fresh:
			if _, err := conn.Set("/config/color", []byte("blue"), -1); err != nil {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// [color size] 7
	// color is red
	// color is blue
}

// In this example, a cache decodes znodes whose data is JSON.
func ExampleOf() {
	srv, err := zktest.NewServer() // a test server; your program connects to its own ensemble instead
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, _, err := srv.Connect(10 * time.Second)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := conn.Create("/limits", []byte(`{"Max":7}`), 0, zk.WorldACL(zk.PermAll)); err != nil {
		log.Fatal(err)
	}

	type limit struct{ Max int }
	all, err := cache.New(conn, "/limits", cache.Subtree)
	if err != nil {
		log.Fatal(err)
	}
	defer all.Close()
	if err := all.Sync(context.Background()); err != nil {
		log.Fatal(err)
	}
	limits := cache.Of(all, recipes.JSONCodec[limit]())
	l, found, err := limits.Get("/limits")
	fmt.Println(l.Max, found, err)
	// Output: 7 true <nil>
}
