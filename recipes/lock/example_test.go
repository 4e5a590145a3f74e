package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// server starts a ZooKeeper server. In production, use an ensemble, and zk.Connect instead of
// connect.
func server() (connect func() *zk.Conn, stop func()) {
	srv, err := zktest.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	return func() *zk.Conn {
		conn, _, err := srv.Connect(10 * time.Second)
		if err != nil {
			log.Fatal(err)
		}
		return conn
	}, srv.Close
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func ExampleMutex() {
	connect, stop := server()
	defer stop()
	ctx := context.Background()
	m := must(lock.NewMutex(connect(), "/locks/report"))

	err := m.Do(ctx, func(ctx context.Context, hold *lock.Hold) error {
		// ctx is done when the lock is lost. Pass hold.Token() to systems that can reject smaller tokens.
		// Write to ZooKeeper by transactions of the hold:
		_, err := hold.Multi(&zk.CreateRequest{Path: "/report", Data: []byte("done"), Acl: zk.WorldACL(zk.PermAll)})
		fmt.Println("written:", err == nil)

		_, err = must(lock.NewMutex(connect(), "/locks/report")).TryLock(ctx)
		fmt.Println("held:", errors.Is(err, lock.ErrHeld))
		return nil
	})
	fmt.Println("released:", err == nil)
	// Output:
	// written: true
	// held: true
	// released: true
}

// A hold that outlives a function is acquired by Lock, and must be released.
func ExampleMutex_Lock() {
	connect, stop := server()
	defer stop()
	m := must(lock.NewMutex(connect(), "/locks/report"))
	hold := must(m.Lock(context.Background()))
	select {
	case <-hold.Done():
		fmt.Println("lost:", hold.Err())
	default:
		fmt.Println("held")
	}
	fmt.Println("released:", hold.Release() == nil)
	// Output:
	// held
	// released: true
}

func ExampleMutex_Contenders() {
	connect, stop := server()
	defer stop()
	ctx := context.Background()
	m := must(lock.NewMutex(connect(), "/locks/report", lock.WithName("batch-1")))
	hold := must(m.Lock(ctx))
	defer hold.Release()
	for _, c := range must(m.Contenders(ctx)) {
		fmt.Println(c.Name, "holds:", c.Holds)
	}
	// Output: batch-1 holds: true
}

func ExampleMutex_Join() {
	connect, stop := server()
	defer stop()
	ctx := context.Background()
	m := must(lock.NewMutex(connect(), "/locks/report"))
	hold := must(m.Lock(ctx))

	waiter := m.Join(ctx)
	fmt.Println("ahead:", must(waiter.Position(ctx)))
	hold.Release()
	second := must(waiter.Wait())
	fmt.Println("greater token:", second.Token() > hold.Token())
	second.Release()
	// Output:
	// ahead: 1
	// greater token: true
}

func ExampleHold_ReleaseRequested() {
	connect, stop := server()
	defer stop()
	ctx := context.Background()
	m := must(lock.NewMutex(connect(), "/locks/report"))
	hold := must(m.Lock(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-hold.ReleaseRequested():
			fmt.Println("release requested")
		case <-hold.Done():
		}
		hold.Release()
	}()

	urgent := must(lock.NewMutex(connect(), "/locks/report"))
	holder := must(urgent.Contenders(ctx))[0]
	if err := urgent.RequestRelease(ctx, holder); err != nil {
		log.Fatal(err)
	}
	must(urgent.Lock(ctx)).Release()
	<-done
	// Output: release requested
}

// A lock whose znode other programs create and read by hand: its data is the owner.
func ExampleSingle() {
	connect, stop := server()
	defer stop()
	ctx := context.Background()
	const path = "/cluster/manager"
	s := must(lock.NewSingle(connect(), path, []byte(`{"hostname":"host-1"}`)))

	err := s.Do(ctx, func(ctx context.Context, hold *lock.Hold) error {
		other := connect() // the connection of a program that does not use this library
		_, err := other.Create(path, []byte(`{"hostname":"host-2"}`), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		fmt.Println("held:", errors.Is(err, zk.ErrNodeExists))
		owner, stat, err := other.Get(path)
		fmt.Println("owner:", string(owner), "token:", stat.Czxid == hold.Token())
		return err
	})
	holder := must(s.Holder(ctx))
	fmt.Println("free:", err == nil && !holder.Holds)
	// Output:
	// held: true
	// owner: {"hostname":"host-1"} token: true
	// free: true
}

func ExampleRWMutex() {
	connect, stop := server()
	defer stop()
	ctx := context.Background()
	m := must(lock.NewRWMutex(connect(), "/locks/index"))

	hold := must(m.Lock(ctx))
	// Write the index, and continue as a reader.
	if err := hold.Downgrade(); err != nil {
		log.Fatal(err)
	}
	other := must(must(lock.NewRWMutex(connect(), "/locks/index")).RLock(ctx))
	fmt.Println("two readers:", hold.Err() == nil && other.Err() == nil)

	_, err := m.Lock(hold.Context())
	fmt.Println("no upgrade:", errors.Is(err, lock.ErrUpgrade))
	other.Release()
	hold.Release()
	// Output:
	// two readers: true
	// no upgrade: true
}

func ExampleMultiLock() {
	connect, stop := server()
	defer stop()
	ctx := context.Background()
	conn := connect()
	from := must(lock.NewMutex(conn, "/locks/account-a"))
	to := must(lock.NewMutex(conn, "/locks/account-b"))
	both := must(lock.NewMultiLock(to, from))

	ctx, cancel := context.WithTimeout(ctx, time.Minute) // one time limit for all locks
	defer cancel()
	err := both.Do(ctx, func(_ context.Context, hold *lock.MultiHold) error {
		_, err := hold.Multi(&zk.CreateRequest{Path: "/transfer", Acl: zk.WorldACL(zk.PermAll)})
		return err
	})
	fmt.Println("while both are held:", err == nil)
	// Output: while both are held: true
}
