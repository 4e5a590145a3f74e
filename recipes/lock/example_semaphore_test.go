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
	srv, err := zktest.NewServer() // a test server; in production, use zk.Connect and an ensemble
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

	// The company has bought more licences.
	if err := compilers.SetLimit(ctx, 5); err != nil {
		log.Fatal(err)
	}
	more, err := compilers.TryAcquire(ctx, 2)
	fmt.Println("two more:", err == nil)

	select {
	case <-two.Done():
		fmt.Println("lost:", two.Err())
	default: // no hold ends when the limit is lowered
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

// An operator finds out who holds a lease, and requests its release.
func ExampleSemaphore_Contenders() {
	srv, err := zktest.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, _, err := srv.Connect(4 * time.Second)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	gpus, err := lock.NewSemaphore(conn, "/app/gpus", 4, lock.WithName("trainer-1"))
	if err != nil {
		log.Fatal(err)
	}
	hold, err := gpus.Acquire(ctx, 3)
	if err != nil {
		log.Fatal(err)
	}

	all, err := gpus.Contenders(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range all {
		fmt.Println(c.Name, "has", c.Leases, "leases:", c.Holds)
		if err := gpus.RequestRelease(ctx, c); err != nil {
			log.Fatal(err)
		}
	}
	<-hold.ReleaseRequested()
	if err := hold.Release(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("released")
	// Output:
	// trainer-1 has 3 leases: true
	// released
}
