package shard_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-leaderelection/leaderelection/recipes/shard"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func ExampleGroup_Run() {
	srv, err := zktest.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, _, err := srv.Connect(10 * time.Second)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	tenants, err := shard.NewGroup(conn, "/shop/tenants", shard.WithGrace(5*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	_, err = tenants.Update(ctx, func(s *shard.Spec) error {
		s.Shards = []string{"acme"}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	err = tenants.Run(ctx, "worker-1", func(ctx context.Context, s *shard.Shard) error {
		fmt.Println("works for", s.Name())
		go func() { // an operator pauses the work for a tenant
			_, _ = tenants.Update(context.Background(), func(s *shard.Spec) error {
				s.Paused = []string{"acme"}
				return nil
			})
		}()
		<-ctx.Done()
		var moved *shard.MovedError
		if errors.As(context.Cause(ctx), &moved) {
			fmt.Println("saves, because the shard is", moved.Reason)
		}
		cancel() // the program stops its member
		return nil
	})
	fmt.Println("left", err)
	// Output:
	// works for acme
	// saves, because the shard is paused
	// left <nil>
}
