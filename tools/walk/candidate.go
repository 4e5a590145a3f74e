//go:build ignore

// This program joins an election as its only candidate, leads and resigns. The command walk builds it, in
// the workspace.
package main

import (
	"log"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func main() {
	server, err := zktest.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	conn, _, err := zkdial.Connect([]string{server.Addr()}, 4*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	candidate, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode())
	if err != nil {
		log.Fatal(err)
	}
	go candidate.ElectLeader()
	for status := range candidate.Status() {
		if status.Role == leaderelection.Leader {
			if err := candidate.Resign(); err != nil {
				log.Fatal(err)
			}
		}
	}
}
