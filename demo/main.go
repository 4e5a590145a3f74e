// Command demo demonstrates an election with three candidates in half a minute. The leader
// crashes, resigns and is partitioned, and at last the election is ended. The output shows the
// candidate that each follower follows, and how long each succession takes. The command uses only the
// public API of the library.
//
//	go run ./demo                        # on servers in this process
//	go run ./demo --zk localhost:2181    # on your ZooKeeper
//
// The servers in this process (package zktest) speak ZooKeeper's protocol over TCP on the loopback
// interface, and store all data in memory, so requests take less time than on a real ensemble. The
// leader's server is partitioned from the other two, not from its client. With --zk, the leader's
// network is partitioned instead. All znodes are below /leaderelection-demo-<random>, which is deleted
// at the end, also after Ctrl-C.
//
// NO_COLOR turns colours off. CLICOLOR_FORCE turns them on if the output is not a terminal.
//
// Exit codes: 0 every step happened in time; 1 a step did not; 2 wrong usage; 130 after Ctrl-C.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options are the settings of the demo.
type options struct {
	servers []string      // the user's servers; if empty, servers in this process
	session time.Duration // the session timeout to request
	pause   time.Duration // the pause after each step
}

// parse sets o to the values of a command line. It defines the flags in set.
func (o *options) parse(set *flag.FlagSet, args []string) error {
	servers := set.String("zk", "", "run on this ZooKeeper, host:port,...")
	set.DurationVar(&o.session, "session", 0, "session timeout to request, 1s to 1m; the servers must grant it: real ones grant 4s to 40s by default (default 4s with --zk, else 2s)")
	set.DurationVar(&o.pause, "pause", 3*time.Second, "time to read after each step")
	if err := set.Parse(args); err != nil {
		return err
	}
	o.servers = strings.FieldsFunc(*servers, func(r rune) bool { return r == ',' || r == ' ' })
	if o.session == 0 {
		o.session = 2 * time.Second
		if len(o.servers) > 0 {
			o.session = 4 * time.Second
		}
	}
	switch {
	case set.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	case *servers != "" && len(o.servers) == 0:
		return fmt.Errorf("--zk %q names no server", *servers)
	case o.session < time.Second || o.session > time.Minute:
		return fmt.Errorf("--session %v: want 1s to 1m", o.session)
	case o.pause < 0:
		return fmt.Errorf("--pause %v: want 0s or more", o.pause)
	}
	return nil
}

func main() {
	var opts options
	if err := opts.parse(flag.CommandLine, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(2)
	}
	// A process that a signal terminates would not delete its znodes. SIGPIPE is sent if the reader of
	// the output exits.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second Ctrl-C then ends the process immediately
	info, err := os.Stdout.Stat()
	isTerminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	colour := isTerminal && os.Getenv("NO_COLOR") == "" || os.Getenv("CLICOLOR_FORCE") != ""
	err = runDemo(ctx, opts, os.Stdout, colour)
	switch {
	case ctx.Err() != nil:
		os.Exit(130)
	case err != nil:
		os.Exit(1) // runDemo has printed the error already
	}
}
