package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/console"
)

// backend is what elections stand on. It may be a lister, a watcher, an ender and a
// deleter too.
type backend interface {
	// candidate makes a candidate; it waits for the backend until ctx is done.
	candidate(ctx context.Context) (leaderelection.Candidate, error)
	// close gives up what open has taken, within seconds.
	close()
}

// backends are how to open each kind. A new one is a line here, and its flags in
// settings.
var backends = map[string]func(*settings) (backend, error){
	"changefeed": openChangefeed,
	"console":    openConsole,
	"etcd":       openEtcd,
	"raftlog":    openRaftlog,
	"zookeeper":  openZooKeeper,
}

// ended says whether a backend's error means that nothing more is to come, in good order.
func ended(err error) bool { return errors.Is(err, console.ErrEndOfInput) }

func backendNames() string {
	return strings.Join(slices.Sorted(maps.Keys(backends)), ", ")
}

func (s *settings) open() (backend, error) {
	open := backends[s.backend]
	switch {
	case s.backend == "":
		return nil, usage("--backend is required: one of %s", backendNames())
	case open == nil:
		return nil, usage("--backend %s: not one of %s", s.backend, backendNames())
	}
	return open(s)
}

// patient makes a candidate, and tries again each second for as long as the error is one
// that passes, and ctx is not done: an elector may be started before what it stands on. what
// is logged with each such error.
func (s *settings) patient(ctx context.Context, what string, passes func(error) bool, candidate func() (leaderelection.Candidate, error)) (leaderelection.Candidate, error) {
	for {
		c, err := candidate()
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil || !passes(err):
			return nil, err
		}
		s.log.Warn(what, "err", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}
