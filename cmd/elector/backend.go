package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/console"
)

// backend is an opened backend. The interfaces of the commands, for example lister and ender,
// show what it can do.
type backend interface {
	// close releases the resources of the backend, within seconds.
	close()
}

// participant is a backend that creates candidates.
type participant interface {
	backend
	// candidate creates a candidate. It waits for the backend until ctx is done.
	candidate(ctx context.Context) (leaderelection.Candidate, error)
}

// kind is a kind of backend.
type kind struct {
	// like is a nil pointer of the type that open returns. Its methods show which commands
	// the backend has.
	like backend
	// check reports what is wrong with the settings. It sends nothing.
	check func(*settings) error
	// checkRun reports what is wrong with settings that only candidates need; nil for nothing.
	checkRun func(*settings) error
	// open is called with settings that check has accepted. It does not wait for servers.
	open func(*settings) (backend, error)
	// openRun is open for the command run. If it is nil, open returns a participant.
	openRun func(*settings) (participant, error)
	// session is the session timeout that the settings ask for; nil for a backend without
	// sessions.
	session func(*settings) time.Duration
	// servers returns the servers that the settings name, "" for none, without passwords.
	servers func(*settings) string
	// values reports whether candidates can advertise a value (--value).
	values bool
	// flags registers the backend's flags; nil for none.
	flags func(*settings, *pflag.FlagSet)
	// advise adds to an error of the backend what the user can do about it; nil for nothing.
	advise func(*settings, error) error
}

// kinds are the backends of this build. Each file of a backend that a build tag excludes adds
// its kind with init; the tags are listed in docs/elector.md.
var kinds = map[string]kind{
	"console": {
		like: (*typed)(nil), check: func(*settings) error { return nil }, open: openConsole,
		servers: func(*settings) string { return "" },
	},
	"zookeeper": {
		like: (*zookeeper)(nil), check: checkZooKeeper, open: openZooKeeper,
		session: func(s *settings) time.Duration { return s.zookeeper.session },
		servers: func(s *settings) string { return s.zookeeper.servers },
		flags:   func(s *settings, flags *pflag.FlagSet) { s.zookeeper.register(flags) },
		advise:  (*settings).adviseZooKeeper,
		values:  true,
	},
}

// ended says whether a backend's error means that nothing more is to come, in good order.
func ended(err error) bool { return errors.Is(err, console.ErrEndOfInput) }

func backendNames() string {
	return strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
}

// inferBackend sets the backend, if it is not set, to the only one whose servers are given.
func (s *settings) inferBackend() {
	if s.backend != "" {
		return
	}
	var given []string
	for name, k := range kinds {
		if k.servers(s) != "" {
			given = append(given, name)
		}
	}
	if len(given) == 1 {
		s.backend = given[0]
	}
}

func (s *settings) kind() (kind, error) {
	k, found := kinds[s.backend]
	switch {
	case s.backend == "":
		return k, usage("--backend is required: one of %s", backendNames())
	case !found:
		return k, usage("--backend %s: not one of this build's backends: %s", s.backend, backendNames())
	}
	return k, nil
}

// check reports what is wrong with the settings of the backend. It sends nothing.
func (s *settings) check() error {
	k, err := s.kind()
	if err != nil {
		return err
	}
	return k.check(s)
}

// checkElection reports, as wrong usage, that --election does not suit the backend.
func (s *settings) checkElection(check func(name string) error) error {
	if err := check(s.election); err != nil {
		return usage("--election: %w", err)
	}
	return nil
}

// unanswered adds to an error the servers that were asked, if they have not answered within
// the timeout that ctx has, and what advise adds.
func (s *settings) unanswered(ctx context.Context, timeout time.Duration, err error) error {
	if err == nil || ctx.Err() == nil {
		return s.advise(err)
	}
	return fmt.Errorf("no answer from %s at %s within %v: %w", s.backend, kinds[s.backend].servers(s), timeout, err)
}

// withCredentials adds to an error of authentication or permissions the settings that have the
// credentials. given reports whether there are any.
func withCredentials(err error, given bool, settings string) error {
	if !given {
		return fmt.Errorf("%w; there are no credentials: set %s", err, settings)
	}
	return fmt.Errorf("%w; check the credentials in %s", err, settings)
}

// advise adds to an error of the backend what the user can do about it.
func (s *settings) advise(err error) error {
	if k := kinds[s.backend]; err != nil && k.advise != nil {
		return k.advise(s, err)
	}
	return err
}

func (s *settings) open() (backend, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	return kinds[s.backend].open(s)
}

// openRun opens the backend for the command run.
func (s *settings) openRun() (participant, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if open := kinds[s.backend].openRun; open != nil {
		return open(s)
	}
	b, err := kinds[s.backend].open(s)
	if err != nil {
		return nil, err
	}
	return b.(participant), nil
}

// openAs opens the backend for a command that needs a T.
func openAs[T any](s *settings, command string) (T, error) {
	var none T
	if err := supports[T](s, command); err != nil {
		return none, err
	}
	b, err := s.open()
	if err != nil {
		return none, err
	}
	return b.(T), nil
}

// supports returns an error, which wraps [errors.ErrUnsupported], if the kind of backend does not
// have the methods that a command needs. It does not check other settings, so that a user is not
// asked for credentials in vain.
func supports[T any](s *settings, command string) error {
	k, err := s.kind()
	if err != nil {
		return err
	}
	if _, able := k.like.(T); able {
		return nil
	}
	var able []string
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		if _, ok := kinds[name].like.(T); ok {
			able = append(able, name)
		}
	}
	hint := ""
	switch {
	case s.backend == "console":
	case command == "resign":
		hint = "; send TERM to the leading elector: it hands over, and exits"
	}
	return usage("%s: %w of backend %s, only of %s%s", command, errors.ErrUnsupported, s.backend, strings.Join(able, ", "), hint)
}

// patient makes a candidate. It tries again each second as long as the error is one that
// passes and ctx is not done: an elector may be started before its servers. It logs text with
// these errors.
func (s *settings) patient(ctx context.Context, text string, passes func(error) bool, candidate func() (leaderelection.Candidate, error)) (leaderelection.Candidate, error) {
	log := s.limitedLog()
	for {
		c, err := candidate()
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil || !passes(err):
			return nil, err
		}
		log.Warn(text, "err", s.advise(err))
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}
