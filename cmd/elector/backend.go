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

// backend contains the functions of an opened backend. A function that the backend does not
// have is nil, except for close. requirements shows which commands need which functions.
type backend struct {
	// close releases the resources of the backend, within seconds.
	close func()

	// candidate creates a candidate. It waits for the backend until ctx is done. Only what
	// openRun returns must have it.
	candidate func(ctx context.Context) (leaderelection.Candidate, error)
	// session returns the session timeout, 0 if it is not known yet.
	session func() time.Duration
	// negotiate waits until the servers have granted a session timeout, which session returns
	// then. It is nil if the servers do not change the timeout of the settings.
	negotiate func(ctx context.Context) error
	// connected returns an error if the backend is not connected. Use checkConnected.
	connected func() error
	// healthy returns an error if the backend cannot recover without a restart.
	healthy func() error

	// list lists the candidates in the order of succession, the leader first. Its error wraps
	// leaderelection.ErrNoElection if the election does not exist.
	list func(ctx context.Context) ([]place, error)
	// watch sends the current leader and each change of it, until ctx is done. The last
	// observation before the channel is closed may be an error.
	watch func(ctx context.Context) (<-chan observation, error)
	// missing reports whether an error of list means that there is no such election.
	missing func(err error) bool
	// at returns the functions that observe another election with the same connection. Its
	// result is not closed.
	at func(election string) backend
	// find lists the elections under a parent; all is false if there may be more.
	find func(ctx context.Context, under string) (elections []string, all bool, err error)

	// askToResign requests a candidate to resign. It returns nil after the candidate has left,
	// and an error that wraps the context's cause if it has not left when ctx is done.
	askToResign func(ctx context.Context, candidate place) error
	// end ends the election for all its candidates. It is an error if there is none.
	end func(ctx context.Context) error
	// remove deletes the election, if it exists.
	remove func(ctx context.Context) error
}

const (
	topOfOthers = "top of another election than --election"
	topUnder    = "top --under"
)

// requirements reports for each command, or use of a command, whether a backend has the
// functions that it needs.
var requirements = map[string]func(backend) bool{
	"status":    func(b backend) bool { return b.list != nil },
	"watch":     func(b backend) bool { return b.watch != nil },
	"top":       func(b backend) bool { return b.list != nil && b.watch != nil },
	topOfOthers: func(b backend) bool { return b.at != nil },
	topUnder:    func(b backend) bool { return b.find != nil },
	"resign":    func(b backend) bool { return b.list != nil && b.askToResign != nil },
	"end":       func(b backend) bool { return b.end != nil },
	"delete":    func(b backend) bool { return b.remove != nil },
}

// checkConnected returns an error if the backend knows that it is not connected.
func (b backend) checkConnected() error {
	if b.connected == nil {
		return nil
	}
	return b.connected()
}

// kind is a kind of backend.
type kind struct {
	// has contains the functions that open returns, of a nil pointer. They are only compared
	// with nil.
	has backend
	// check reports what is wrong with the settings. It sends nothing.
	check func(*settings) error
	// checkRun reports what is wrong with settings that only candidates need; nil for nothing.
	checkRun func(*settings) error
	// open is called with settings that check has accepted. It does not wait for servers.
	open func(*settings) (backend, error)
	// openRun is open for the command run; nil if it is the same as open.
	openRun func(*settings) (backend, error)
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
		has: (*typed)(nil).functions(), check: func(*settings) error { return nil }, open: openConsole,
		servers: func(*settings) string { return "" },
	},
	"zookeeper": {
		has: (*zookeeper)(nil).functions(), check: checkZooKeeper, open: openZooKeeper,
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
		return backend{}, err
	}
	return kinds[s.backend].open(s)
}

// openRun opens the backend for the command run.
func (s *settings) openRun() (backend, error) {
	if err := s.check(); err != nil {
		return backend{}, err
	}
	if open := kinds[s.backend].openRun; open != nil {
		return open(s)
	}
	return kinds[s.backend].open(s)
}

// openFor opens the backend for a command that requirements lists.
func (s *settings) openFor(command string) (backend, error) {
	if err := s.supports(command); err != nil {
		return backend{}, err
	}
	return s.open()
}

// supports returns an error, which wraps [errors.ErrUnsupported], if the kind of backend does not
// meet the requirements of a command. It does not check other settings, so that a user is not
// asked for credentials in vain.
func (s *settings) supports(command string) error {
	k, err := s.kind()
	if err != nil {
		return err
	}
	meets := requirements[command]
	if meets(k.has) {
		return nil
	}
	var able []string
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		if meets(kinds[name].has) {
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
