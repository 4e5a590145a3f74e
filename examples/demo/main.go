// Command demo shows an election at work: three candidates, whose leader crashes,
// resigns and is cut off, until the election is ended. It takes less than a
// minute.
//
// Without arguments it runs on three servers of package zktest inside its own
// process, with --zk on a ZooKeeper of yours. It is built on the library's public
// API alone.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usage = `Usage: demo [flags]

Three candidates take part in an election on ZooKeeper. You see who leads, who
follows whom, and how long each succession takes while the leader crashes,
resigns and is cut off.

Without flags it runs on three embedded servers (package zktest): they speak
ZooKeeper's protocol over TCP on loopback, inside the demo's process, and keep
everything in memory, so requests take less time than on a real ensemble. What
is cut off is the leader's server: from the other two, not from its client.

Flags:
  --zk host:port,...  use this ZooKeeper instead. What is cut off is the
                      leader's network then. The demo works under a znode of
                      its own, /leaderelection-demo-<random>, and deletes it at
                      the end, also after Ctrl-C.
  --session duration  session timeout to ask for, 1s to 1m. It must be one that
                      the servers grant: real ones grant 4s to 40s by default.
                      (default 4s with --zk, else 2s)
  --pause duration    time to read after each step (default 3s)
  --help              show this text

The exit code is 0 when every step happened in its time, 1 when one did not,
2 for a wrong flag and 130 after Ctrl-C. NO_COLOR turns colours off.
`

// options are what the user can choose.
type options struct {
	zk      []string // the user's servers; none for embedded ones
	session time.Duration
	pause   time.Duration
}

func main() { os.Exit(command(os.Args[1:])) }

func command(args []string) int {
	opts, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(usage)
		return 0
	case err != nil:
		fmt.Fprintf(os.Stderr, "demo: %v\n\n%s", err, usage)
		return 2
	}

	// Ending by a signal would leave the znode behind; so would SIGPIPE when
	// the reader of our output goes.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the demo at once

	out := newScreen(os.Stdout, isTerminal(os.Stdout), os.Getenv("NO_COLOR") == "")
	_, err = run(ctx, opts, out)
	switch {
	case ctx.Err() != nil:
		return 130
	case err != nil:
		return 1
	}
	return 0
}

func parse(args []string) (options, error) {
	var opts options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // command prints the error and the usage
	servers := flags.String("zk", "", "")
	flags.DurationVar(&opts.session, "session", 0, "")
	flags.DurationVar(&opts.pause, "pause", 3*time.Second, "")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for server := range strings.SplitSeq(*servers, ",") {
		if server = strings.TrimSpace(server); server != "" {
			opts.zk = append(opts.zk, server)
		}
	}
	if *servers != "" && len(opts.zk) == 0 {
		return options{}, fmt.Errorf("--zk %q names no server", *servers)
	}
	if opts.session == 0 {
		opts.session = 2 * time.Second
		if len(opts.zk) > 0 {
			opts.session = 4 * time.Second
		}
	}
	switch {
	case opts.session < time.Second || opts.session > time.Minute:
		return options{}, fmt.Errorf("--session %v: want 1s to 1m", opts.session)
	case opts.pause < 0:
		return options{}, fmt.Errorf("--pause %v: want 0s or more", opts.pause)
	}
	return opts, nil
}
