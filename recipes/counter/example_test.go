package counter_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes/counter"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func Example() {
	srv, err := zktest.NewServer() // a program connects to its ensemble instead
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, _, err := srv.Connect(10 * time.Second)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	visits, err := counter.New(conn, "/shop/visits")
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		n, err := visits.Add(ctx, 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("visit", n)
	}

	orders, err := counter.New(conn, "/shop/orders")
	if err != nil {
		log.Fatal(err)
	}
	ids, err := counter.NewIDs(orders, 100) // one write for 100 orders
	if err != nil {
		log.Fatal(err)
	}
	id, err := ids.Next(ctx)
	fmt.Println("order", id, err)
	// Output:
	// visit 1
	// visit 2
	// visit 3
	// order 1 <nil>
}
