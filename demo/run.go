package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Options are the settings of the demo.
type Options struct {
	Servers []string      // the user's servers; if empty, servers of package zktest inside this process
	Session time.Duration // session timeout to request; 0 for the default
	Pause   time.Duration // after each step

	list string // the value of --zk; Complete splits it
}

// Flags defines the demo's flags in set, which is a set of package flag or of pflag.
func (o *Options) Flags(set interface {
	StringVar(p *string, name, value, usage string)
	DurationVar(p *time.Duration, name string, value time.Duration, usage string)
},
) {
	set.StringVar(&o.list, "zk", "", "run on this ZooKeeper, host:port,...")
	set.DurationVar(&o.Session, "session", 0, "session timeout to request, 1s to 1m; the servers must grant it: real ones grant 4s to 40s by default (default 4s with --zk, else 2s)")
	set.DurationVar(&o.Pause, "pause", 3*time.Second, "time to read after each step")
}

// Complete parses the list of servers and sets defaults. It returns an error if a value is
// invalid.
func (o *Options) Complete() error {
	for server := range strings.SplitSeq(o.list, ",") {
		if server = strings.TrimSpace(server); server != "" {
			o.Servers = append(o.Servers, server)
		}
	}
	if o.list != "" && len(o.Servers) == 0 {
		return fmt.Errorf("--zk %q names no server", o.list)
	}
	if o.Session == 0 {
		o.Session = 2 * time.Second
		if len(o.Servers) > 0 {
			o.Session = 4 * time.Second
		}
	}
	switch {
	case o.Session < time.Second || o.Session > time.Minute:
		return fmt.Errorf("--session %v: want 1s to 1m", o.Session)
	case o.Pause < 0:
		return fmt.Errorf("--pause %v: want 0s or more", o.Pause)
	}
	return nil
}

// ErrInterrupted is returned by Run if a signal or the context has ended the demo.
var ErrInterrupted = errors.New("interrupted")

// Run runs the demo, prints it to out, and deletes what it has created, also if ctx or a
// signal ends it. An error means that a step did not happen as expected; Run has printed it.
//
// Run prints colours if out is a terminal. NO_COLOR turns them off, and CLICOLOR_FORCE turns
// them on for other outputs.
func Run(ctx context.Context, opts Options, out *os.File) error {
	// A process that a signal terminates would not delete its znodes. SIGPIPE is sent if the reader of
	// the output exits.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process immediately
	live := isTerminal(out)
	colour := live && os.Getenv("NO_COLOR") == "" || os.Getenv("CLICOLOR_FORCE") != ""
	_, err := runDemo(ctx, opts, newScreen(out, live, colour))
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}
