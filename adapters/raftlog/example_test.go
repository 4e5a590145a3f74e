package raftlog_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// This cluster has one peer, which is a majority. With more peers, the program is the same, and each peer has a
// different ID, Addr and Dir.
func Example() {
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0") // usually the node listens on Addr itself
	if err != nil {
		log.Fatal(err)
	}
	self := api.Peer{ID: "a", Addr: listener.Addr().String()}
	node, err := raftlog.Open(raftlog.Config{
		Cluster: "orders", ID: self.ID, Addr: self.Addr, Listener: listener,
		Peers: []api.Peer{self}, Dir: dir, Secret: []byte("16 random bytes, or more"),
		ElectionTimeout: 200 * time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	id := api.NewRequestID()
	first, err := node.Propose(ctx, id, []byte("an order"))
	if err != nil {
		log.Fatal(err)
	}
	again, err := node.Propose(ctx, id, []byte("an order")) // repeats the update, like a caller that has received no reply
	fmt.Println("applied once:", again == first, err)

	election, err := raftlog.NewElection(node, "dispatcher")
	if err != nil {
		log.Fatal(err)
	}
	go election.ElectLeader()
	for status := range election.Status() {
		if status.Role == leaderelection.Leader {
			fmt.Println("leads:", status.Leadership.Token() > int64(first))
			election.Resign()
		}
	}
	// Output:
	// applied once: true <nil>
	// leads: true
}
