package group_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/group"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func ExampleGroup() {
	srv, err := zktest.NewServer() // a test server; your program connects to its own ensemble instead
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, _, err := srv.Connect(10 * time.Second)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	workers, err := group.New(conn, "/shop/workers")
	if err != nil {
		log.Fatal(err)
	}
	me, err := workers.Join(ctx, "host-1", []byte("idle"))
	if err != nil {
		log.Fatal(err)
	}
	if err := me.Set(ctx, []byte("busy")); err != nil {
		log.Fatal(err)
	}
	for view := range workers.Watch(ctx) {
		for _, m := range view.Members {
			fmt.Printf("%s is %s\n", m.ID, m.Data)
		}
		if len(view.Members) == 0 {
			fmt.Println("no members left", view.Err)
			break
		}
		if err := me.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// host-1 is busy
	// no members left <nil>
}

// In this example, the data of each member is a Go value as JSON.
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
	ctx := context.Background()

	type worker struct{ Zone string }
	all, err := group.New(conn, "/shop/workers")
	if err != nil {
		log.Fatal(err)
	}
	workers := group.Of(all, recipes.JSONCodec[worker]())
	me, err := workers.Join(ctx, "host-1", worker{Zone: "north"})
	if err != nil {
		log.Fatal(err)
	}
	defer me.Close()
	members, err := all.Members(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range members {
		w, err := workers.Value(m) // an error of one member does not affect the others
		fmt.Println(m.ID, "is in zone", w.Zone, err)
	}
	// Output: host-1 is in zone north <nil>
}
