// Command repository does what concerns several modules, or documents of the whole repository. It runs in the directory
// tools, with GOWORK=off:
//
//	go run ./repository tidy            # go mod tidy in every module
//	go run ./repository check           # build every module as its users get it
//	go run ./repository test DIR ...    # test libraries with the versions that they require
//	go run ./repository version v0.2.0  # let the modules require each other with a version
//	go run ./repository tag             # tag that version of every module
//	go run ./repository types -platform GOOS/GOARCH [-tests] PACKAGE ...  # check types for another platform
//	go run ./repository site [-o DIR] [-external]                         # build the site of docs, and check its links
//	go run ./repository adopters [-original] NAME=CHECKOUT ...            # run tests of other projects on this library
//
// The modules, which go.work lists, have one version number, and require each other with it. The commands tidy, check
// and test provide the files of the working tree to the go command through a module proxy, which is a temporary
// directory. So they work before a version is published.
//
// The tests of this package test documents, workflows, dependencies, the size of the API and the list of failure
// scenarios. Test with -count 1: the go command keeps a result although files outside of the module tools have changed.
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
		fmt.Fprintln(os.Stderr, "repository:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: repository tidy | check | test DIR ... | version vX.Y.Z | tag | " +
	"types -platform GOOS/GOARCH [-tests] PACKAGES | site [-o DIR] [-external] | adopters [-original] NAME=CHECKOUT [NAME=CHECKOUT ...]")

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	command, args := args[0], args[1:]
	switch command {
	case "types":
		return runTypes(args)
	case "site":
		return runSite(args)
	case "adopters":
		return runAdopters(ctx, args)
	}
	r, err := readRepository(".")
	switch {
	case err != nil:
		return err
	case command == "tidy" && len(args) == 0:
		return withProxy(ctx, r, func(p *proxy) error { return p.tidyModules(ctx, true) })
	case command == "check" && len(args) == 0:
		return withProxy(ctx, r, func(p *proxy) error { return p.checkModules(ctx) })
	case command == "test" && len(args) > 0:
		return withProxy(ctx, r, func(p *proxy) error { return p.testModules(ctx, args) })
	case command == "version" && len(args) == 1:
		return setVersion(r, args[0])
	case command == "tag" && len(args) == 0:
		return tagModules(ctx, r)
	}
	return errUsage
}
