package elector_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// Lead runs a function in one of several processes at a time.
func ExampleLead() {
	srv, err := zktest.NewServer() // a test server; your program connects to its own ensemble instead
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, _, err := srv.Connect(4 * time.Second)
	if err != nil {
		log.Fatal(err)
	}
	candidate, err := leaderelection.NewElection(conn, "/nightly", leaderelection.WithCreateNode())
	if err != nil {
		log.Fatal(err)
	}

	err = elector.Lead(context.Background(), candidate, func(ctx context.Context, l *leaderelection.Leadership) error {
		fmt.Println("leader, may write until the context is done:", ctx.Err() == nil)
		return nil // the work is complete
	})
	fmt.Println("handed over:", err)
	// Output:
	// leader, may write until the context is done: true
	// handed over: <nil>
}

// An Elector switches a service on and off. The program participates in the election until it exits.
func ExampleElector() {
	srv, err := zktest.NewServer() // a test server; your program connects to its own ensemble instead
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, _, err := srv.Connect(4 * time.Second)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // a program would use signal.NotifyContext
	defer stop()

	e := elector.Elector{
		NewCandidate: func(context.Context) (leaderelection.Candidate, error) {
			return leaderelection.NewElection(conn, "/service", leaderelection.WithCreateNode())
		},
		Begin: func(ctx context.Context, l *leaderelection.Leadership) error {
			fmt.Println("service on")
			return nil
		},
		Work: func(ctx context.Context, l *leaderelection.Leadership) error {
			stop() // the program receives TERM
			<-ctx.Done()
			return nil
		},
		End: func(ctx context.Context, l *leaderelection.Leadership) error {
			fmt.Println("service off, while this program is still the leader:", l.Err() == nil)
			return nil
		},
	}
	fmt.Println("handed over:", e.Run(ctx))
	// Output:
	// service on
	// service off, while this program is still the leader: true
	// handed over: <nil>
}
