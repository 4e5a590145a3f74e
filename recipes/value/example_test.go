package value_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/value"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func ExampleValue_Update() {
	srv, err := zktest.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, _, err := srv.Connect(10 * time.Second)
	if err != nil {
		log.Fatal(err)
	}

	type limits struct{ Rate, Burst int }
	v, err := value.New(conn, "/shop/limits", recipes.JSONCodec[limits]())
	if err != nil {
		log.Fatal(err)
	}
	now, err := v.Update(context.Background(), func(l limits) (limits, error) {
		l.Rate += 10 // Update applies the function to the current value, even if other clients change it concurrently
		return l, nil
	})
	fmt.Println(now, err)
	// Output: {10 0} <nil>
}

func ExampleCounter() {
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

	visits, err := value.NewCounter(conn, "/shop/visits")
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

	orders, err := value.NewCounter(conn, "/shop/orders")
	if err != nil {
		log.Fatal(err)
	}
	ids, err := value.NewIDs(orders, 100) // allocates 100 numbers with one write
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
