// Command demo demonstrates an election with three candidates in half a minute. The leader
// crashes, resigns and is partitioned, and at last the election is ended. It uses only the public API of
// the library.
//
//	go run ./demo                       # on servers in this process
//	go run ./demo --zk localhost:2181    # on your ZooKeeper
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	var opts Options
	opts.Flags(flag.CommandLine)
	flag.Parse()
	err := opts.Complete()
	if flag.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(2)
	}
	switch err := Run(context.Background(), opts, os.Stdout); {
	case errors.Is(err, ErrInterrupted):
		os.Exit(130)
	case err != nil:
		os.Exit(1) // Run has printed the error
	}
}
