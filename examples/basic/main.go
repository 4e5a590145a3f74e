// Command basic is the smallest useful candidate: it takes part in an election,
// acts while it leads, and resigns on Ctrl-C. What a program of your own needs is
// in candidate.go.
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
	servers := flag.String("zk", "", "ZooKeeper servers, host:port,...; none: three candidates on an embedded server")
	node := flag.String("election", "/election", "election node; created where it is missing")
	flag.Parse()
	log.SetFlags(log.Ltime)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *servers == "" {
		err = threeCandidates(ctx, *node)
	} else {
		err = candidate(ctx, strings.Split(*servers, ","), *node, fmt.Sprintf("basic-%d", os.Getpid()))
	}
	if err != nil {
		log.Fatal(err)
	}
}
