package zktest_test

import (
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// must is for examples only, which have no test to fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// session waits until the client has one.
func session(events <-chan zk.Event) {
	for ev := range events {
		if ev.State == zk.StateHasSession {
			return
		}
	}
}

func Example() {
	srv := must(zktest.New())
	defer srv.Close()
	conn, events, err := srv.Connect(10 * time.Second)
	if err != nil {
		panic(err)
	}
	session(events)
	must(conn.Create("/workers", nil, 0, zk.WorldACL(zk.PermAll)))
	must(conn.Create("/workers/w-", []byte("host-a"), zk.FlagSequence, zk.WorldACL(zk.PermAll)))
	fmt.Print(srv.Tree())
	// Output:
	// /
	//   workers
	//     w-0000000000 "host-a"
}

// A session ends on the server: its nodes go at once, and others are told. Its own
// client learns it when it is back.
func ExampleServer_ExpireSession() {
	srv := must(zktest.New())
	defer srv.Close()
	owner, ownerEvents, _ := srv.Connect(10 * time.Second)
	session(ownerEvents)
	other, otherEvents, _ := srv.Connect(10 * time.Second)
	session(otherEvents)
	must(owner.Create("/lock", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))
	_, _, gone, _ := other.ExistsW("/lock")

	if err := srv.ExpireSession(owner.SessionID()); err != nil {
		panic(err)
	}
	fmt.Println("others:", (<-gone).Type)
	for ev := range ownerEvents {
		if ev.State == zk.StateExpired {
			fmt.Println("its own client:", ev.State)
			break
		}
	}
	// Output:
	// others: EventNodeDeleted
	// its own client: StateExpired
}

// The create is applied and its answer lost: the node is there, and the client
// cannot know.
func ExampleServer_After() {
	srv := must(zktest.New())
	defer srv.Close()
	conn, events, _ := srv.Connect(10 * time.Second)
	session(events)
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

// A client is left at a server that is cut off: it reads an old state and its pings
// are answered, while its session ends on the other side.
func ExampleServer_Partition() {
	srv := must(zktest.New(zktest.WithManualClock()))
	defer srv.Close()
	leader, leaderEvents, _ := srv.Connect(10 * time.Second)
	session(leaderEvents)
	other, otherEvents, _ := srv.Connect(30 * time.Second)
	session(otherEvents)
	must(leader.Create("/leader", []byte("first"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))

	srv.Partition(leader.SessionID())
	srv.Advance(11 * time.Second)
	must(other.Create("/leader", []byte("second"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))

	data, _, _ := leader.Get("/leader")
	fmt.Printf("the old leader reads %q and is in %v\n", data, leader.State())
	data, _, _ = other.Get("/leader")
	fmt.Printf("everybody else reads %q\n", data)
	// Output:
	// the old leader reads "first" and is in StateHasSession
	// everybody else reads "second"
}

// A whole server is cut off. Its client knows no other server, so its session ends and
// another client can take over.
func ExampleServer_Partition_server() {
	ens := must(zktest.NewEnsemble(3, zktest.WithManualClock()))
	defer ens.Close()
	leader, leaderEvents, _ := ens.Server(1).Connect(10 * time.Second)
	session(leaderEvents)
	other, otherEvents, _ := ens.Connect(30 * time.Second) // to all servers, beginning with 0
	session(otherEvents)
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

// Time by hand, for clients that cannot be in a synctest bubble.
func ExampleServer_Advance() {
	srv := must(zktest.New(zktest.WithManualClock()))
	defer srv.Close()
	_, events, _ := srv.Connect(10 * time.Second)
	session(events)
	srv.Advance(9 * time.Second)
	fmt.Println(len(srv.Sessions()), "session")
	srv.Advance(2 * time.Second)
	fmt.Println(len(srv.Sessions()), "sessions")
	// Output:
	// 1 session
	// 0 sessions
}
