package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// connect connects to a test server. A program connects to its ensemble with zk.Connect instead.
func connect() (conn *zk.Conn, done func()) {
	srv, err := zktest.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	conn, _, err = srv.Connect(4 * time.Second)
	if err != nil {
		log.Fatal(err)
	}
	return conn, srv.Close
}

// A producer puts jobs, and a consumer processes them.
func Example() {
	conn, done := connect()
	defer done()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	jobs, err := queue.New(conn, "/jobs", queue.WithMaxAttempts(5))
	if err != nil {
		log.Fatal(err)
	}
	defer jobs.Close()

	for _, job := range []string{"rebuild index", "send report"} {
		if _, err := jobs.Put(ctx, []byte(job)); err != nil {
			log.Fatal(err)
		}
	}

	n := 0
	err = jobs.Handle(ctx, func(ctx context.Context, item *queue.Item) error {
		if n++; n == 2 {
			defer cancel() // ends the example
		}
		// ctx ends before another consumer can claim the item. If the function returns an error, Handle
		// returns the item to the queue.
		return work(ctx, item.Data())
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// rebuild index
	// send report
}

func work(_ context.Context, job []byte) error {
	fmt.Println(string(job))
	return nil
}

// An item is delivered at a later time.
func ExampleWithTime() {
	conn, done := connect()
	defer done()
	ctx := context.Background()
	reminders, err := queue.New(conn, "/reminders")
	if err != nil {
		log.Fatal(err)
	}
	defer reminders.Close()

	begin := time.Now()
	if _, err := reminders.Put(ctx, []byte("later"), queue.WithTime(begin.Add(100*time.Millisecond))); err != nil {
		log.Fatal(err)
	}
	_, err = reminders.TryTake(ctx)
	fmt.Println(errors.Is(err, queue.ErrEmpty))
	item, err := reminders.Take(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(item.Data()), time.Since(begin) > 90*time.Millisecond)
	_ = item.Ack()
	// Output:
	// true
	// later true
}

// Items that cannot be processed become dead letters, which can be put back into the queue.
func ExampleQueue_DeadLetters() {
	conn, done := connect()
	defer done()
	ctx := context.Background()
	jobs, err := queue.New(conn, "/jobs", queue.WithMaxAttempts(2))
	if err != nil {
		log.Fatal(err)
	}
	defer jobs.Close()

	_, _ = jobs.Put(ctx, []byte("divide by zero"))
	for range 2 {
		item, err := jobs.Take(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("attempt", item.Attempt())
		_ = item.Return(errors.New("cannot divide"))
	}

	letters, err := jobs.DeadLetters(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range letters {
		fmt.Printf("%s: %s after %d attempts\n", l.Parts[0], l.Reason, l.Attempts)
		if err := jobs.Requeue(ctx, l); err != nil {
			log.Fatal(err)
		}
	}
	item, err := jobs.Take(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("attempt", item.Attempt())
	_ = item.Ack()
	// Output:
	// attempt 1
	// attempt 2
	// divide by zero: cannot divide after 2 attempts
	// attempt 1
}

// An item moves to the next queue exactly once, in the transaction that acknowledges it.
func ExampleItem_Ack() {
	conn, done := connect()
	defer done()
	ctx := context.Background()
	orders, err := queue.New(conn, "/orders")
	if err != nil {
		log.Fatal(err)
	}
	defer orders.Close()
	invoices, err := queue.New(conn, "/invoices")
	if err != nil {
		log.Fatal(err)
	}
	defer invoices.Close()

	_, _ = invoices.Put(ctx, []byte("invoice of the previous day"))
	_, _ = orders.Put(ctx, []byte("order 4711"))
	order, err := orders.Take(ctx)
	if err != nil {
		log.Fatal(err)
	}
	invoice, err := invoices.PutRequest(ctx, append([]byte("invoice for "), order.Data()...))
	if err != nil {
		log.Fatal(err)
	}
	if err := order.Ack(invoice); err != nil {
		log.Fatal(err)
	}
	items, err := invoices.TakeUpTo(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, item := range items {
		fmt.Println(string(item.Data()))
	}
	fmt.Println(queue.AckAll(items...))
	// Output:
	// invoice of the previous day
	// invoice for order 4711
	// <nil>
}

// A job that fails is delivered again after a delay, which also applies to other processes and after a restart.
func ExampleLater() {
	srv, err := zktest.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, _, err := srv.Connect(4 * time.Second)
	if err != nil {
		log.Fatal(err)
	}
	ctx, done := context.WithCancel(context.Background())
	mails, err := queue.New(conn, "/app/mails", queue.WithMaxAttempts(5))
	if err != nil {
		log.Fatal(err)
	}
	defer mails.Close()
	if _, err := mails.Put(ctx, []byte("to alice")); err != nil {
		log.Fatal(err)
	}
	err = mails.Handle(ctx, func(ctx context.Context, mail *queue.Item) error {
		fmt.Println("attempt", mail.Attempt())
		if mail.Attempt() == 1 {
			return queue.Later(50*time.Millisecond, errors.New("the mail server requests a pause"))
		}
		if err := mail.Ack(); err != nil {
			return err
		}
		done()
		return nil
	})
	fmt.Println(err)
	// Output:
	// attempt 1
	// attempt 2
	// <nil>
}
