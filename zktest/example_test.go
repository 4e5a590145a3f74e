package zktest_test

import (
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// must returns v. It panics if err is not nil, because an example cannot fail in another way.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// waitForSession waits until events, the channel of a client, reports that the client has a session.
func waitForSession(events <-chan zk.Event) {
	for ev := range events {
		if ev.State == zk.StateHasSession {
			return
		}
	}
}

func Example() {
	srv := must(zktest.NewServer())
	defer srv.Close()
	conn, events, err := srv.Connect(10 * time.Second)
	if err != nil {
		panic(err)
	}
	waitForSession(events)
	must(conn.Create("/workers", nil, 0, zk.WorldACL(zk.PermAll)))
	must(conn.Create("/workers/w-", []byte("host-a"), zk.FlagSequence, zk.WorldACL(zk.PermAll)))
	fmt.Print(srv.Tree())
	// Output:
	// /
	//   workers
	//     w-0000000000 "host-a"
}

// When a session expires, the server deletes its ephemeral znodes and notifies other clients
// immediately. The client of the session receives the notification when it has reconnected.
func ExampleServer_ExpireSession() {
	srv := must(zktest.NewServer())
	defer srv.Close()
	owner, ownerEvents, _ := srv.Connect(10 * time.Second)
	waitForSession(ownerEvents)
	other, otherEvents, _ := srv.Connect(10 * time.Second)
	waitForSession(otherEvents)
	must(owner.Create("/lock", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))
	_, _, gone, _ := other.ExistsW("/lock")

	if err := srv.ExpireSession(owner.SessionID()); err != nil {
		panic(err)
	}
	fmt.Println("another client:", (<-gone).Type)
	for ev := range ownerEvents {
		if ev.State == zk.StateExpired {
			fmt.Println("its own client:", ev.State)
			break
		}
	}
	// Output:
	// another client: EventNodeDeleted
	// its own client: StateExpired
}

// This example loses the reply to a create that was applied: the znode exists, and the client cannot
// know that.
func ExampleServer_After() {
	srv := must(zktest.NewServer())
	defer srv.Close()
	conn, events, _ := srv.Connect(10 * time.Second)
	waitForSession(events)
	srv.After(zktest.Match{Op: zktest.OpCreate, Nth: 1}, zktest.Cut)

	_, err := conn.Create("/n-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	fmt.Println(err)
	for _, x := range srv.Log() {
		if x.Op == zktest.OpCreate {
			fmt.Println(x.Created, "-", x.Fate)
		}
	}
	// Output:
	// zk: connection closed
	// /n-0000000000 - cut after
}

// In this example, a client remains connected to a server that is cut off: it reads an old state and
// its pings are answered, while its session expires on the majority side.
func ExampleServer_Partition() {
	srv := must(zktest.NewServer(zktest.WithManualClock()))
	defer srv.Close()
	leader, leaderEvents, _ := srv.Connect(10 * time.Second)
	waitForSession(leaderEvents)
	other, otherEvents, _ := srv.Connect(30 * time.Second)
	waitForSession(otherEvents)
	must(leader.Create("/leader", []byte("first"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))

	srv.Partition(leader.SessionID())
	srv.Advance(11 * time.Second)
	must(other.Create("/leader", []byte("second"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))

	data, _, _ := leader.Get("/leader")
	fmt.Printf("the old leader reads %q and is in %v\n", data, leader.State())
	data, _, _ = other.Get("/leader")
	fmt.Printf("the other client reads %q\n", data)
	// Output:
	// the old leader reads "first" and is in StateHasSession
	// the other client reads "second"
}

// In this example, a whole server is cut off. Its client knows no other server, so its session expires
// and another client can become leader.
func ExampleServer_Partition_server() {
	ens := must(zktest.NewEnsemble(3, zktest.WithManualClock()))
	defer ens.Close()
	leader, leaderEvents, _ := ens.Server(1).Connect(10 * time.Second)
	waitForSession(leaderEvents)
	other, otherEvents, _ := ens.Connect(30 * time.Second) // this client knows all servers, and begins with server 0
	waitForSession(otherEvents)
	must(leader.Create("/leader", []byte("first"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))
	_, _, gone, _ := other.ExistsW("/leader")

	ens.Server(1).Partition()
	ens.Server(1).Advance(11 * time.Second)
	fmt.Println((<-gone).Type)
	must(other.Create("/leader", []byte("second"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))
	data, _, _ := leader.Get("/leader")
	fmt.Printf("the old leader reads %q and is in %v\n", data, leader.State())
	// Output:
	// EventNodeDeleted
	// the old leader reads "first" and is in StateHasSession
}

// In this example, the test advances the clock, for clients that cannot run in a synctest bubble.
func ExampleServer_Advance() {
	srv := must(zktest.NewServer(zktest.WithManualClock()))
	defer srv.Close()
	_, events, _ := srv.Connect(10 * time.Second)
	waitForSession(events)
	srv.Advance(9 * time.Second)
	fmt.Println(len(srv.Sessions()), "session")
	srv.Advance(2 * time.Second)
	fmt.Println(len(srv.Sessions()), "sessions")
	// Output:
	// 1 session
	// 0 sessions
}
