package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func ExampleSemaphore() {
	srv, err := zktest.NewServer() // in production an ensemble, and zk.Connect
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	const timeout = 4 * time.Second
	conn, _, err := srv.Connect(timeout)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	// At most three processes at a time may use the licensed compiler.
	compilers, err := lock.NewSemaphore(conn, "/app/compilers", 3, recipes.WithSessionTimeout(timeout))
	if err != nil {
		log.Fatal(err)
	}
	two, err := compilers.Acquire(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	_, err = compilers.TryAcquire(ctx, 2)
	fmt.Println("two more:", errors.Is(err, lock.ErrHeld))

	// More licences were bought.
	if err := compilers.SetLimit(ctx, 5); err != nil {
		log.Fatal(err)
	}
	more, err := compilers.TryAcquire(ctx, 2)
	fmt.Println("two more:", err == nil)

	select {
	case <-two.Done():
		fmt.Println("lost:", two.Err())
	default: // still held
	}
	for _, hold := range []*lock.Hold{two, more} {
		if err := hold.Release(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// two more: true
	// two more: true
}
