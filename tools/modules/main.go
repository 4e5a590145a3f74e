// Command modules manages the modules of this repository, which go.work lists. They have one
// version number, and require each other with it. It runs in the directory tools, with GOWORK=off:
//
//	go run ./modules tidy            # go mod tidy in every module
//	go run ./modules check           # build every module as its users get it
//	go run ./modules test DIR ...    # test libraries with the versions that they require
//	go run ./modules version v0.2.0  # let the modules require each other with a version
//	go run ./modules tag             # tag that version of every module
//
// The commands tidy, check and test provide the files of the working tree to the go command through a
// module proxy, which is a temporary directory. So they work before a version is published.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "modules:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: modules tidy | check | test DIR ... | version vX.Y.Z | tag")

func run(ctx context.Context, args []string) error {
	r, err := readRepository(".")
	switch {
	case err != nil:
		return err
	case len(args) == 1 && args[0] == "tidy":
		return withProxy(ctx, r, func(p *proxy) error { return p.tidyModules(ctx, true) })
	case len(args) == 1 && args[0] == "check":
		return withProxy(ctx, r, func(p *proxy) error { return p.checkModules(ctx) })
	case len(args) > 1 && args[0] == "test":
		return withProxy(ctx, r, func(p *proxy) error { return p.testModules(ctx, args[1:]) })
	case len(args) == 2 && args[0] == "version":
		return setVersion(r, args[1])
	case len(args) == 1 && args[0] == "tag":
		return tagModules(ctx, r)
	}
	return errUsage
}
