// Command basic is the smallest useful candidate: it joins an election, works while it is the
// leader, and resigns on Ctrl-C. The code that a program needs is in candidate.go.
//
//	go run ./examples/basic                        # three candidates on an embedded server, for 12 seconds
//	go run ./examples/basic --zk localhost:2181    # one candidate: start it several times
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
)

func main() {
	servers := flag.String("zk", "", "ZooKeeper servers, host:port,...; by default three candidates run on an embedded server")
	node := flag.String("election", "/election", "election node; it is created if it does not exist")
	flag.Parse()
	log.SetFlags(log.Ltime)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *servers == "" {
		err = runThreeCandidates(ctx, *node)
	} else {
		err = runCandidate(ctx, strings.Split(*servers, ","), *node, fmt.Sprintf("basic-%d", os.Getpid()))
	}
	if err != nil {
		log.Fatal(err)
	}
}
