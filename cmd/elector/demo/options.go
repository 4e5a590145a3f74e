// Package demo shows an election at work: three candidates, whose leader crashes,
// resigns and is cut off, until the election is ended. It takes less than a minute. It is
// what elector demo runs, and is built on the library's public API alone.
package demo

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Options are what the user can choose.
type Options struct {
	Servers []string      // the user's; none for servers of package zktest inside this process
	Session time.Duration // timeout to ask for; 0 for the default
	Pause   time.Duration // after each step
}

// Complete fills in the default, and refuses what cannot work.
func (o *Options) Complete() error {
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

// Run tells the whole story on out, and leaves nothing behind, also when ctx ends it. An
// error says that a step did not happen as it should; it was shown on out.
func Run(ctx context.Context, opts Options, out *os.File) error {
	_, err := run(ctx, opts, newScreen(out, isTerminal(out), os.Getenv("NO_COLOR") == ""))
	return err
}
