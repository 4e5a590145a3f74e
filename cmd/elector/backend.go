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
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storeurl"
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

// kind is a kind of backend.
type kind struct {
	// like is a nil pointer of the type that open returns. Its methods show which commands
	// the backend has.
	like backend
	// check reports what is wrong with the settings. It sends nothing.
	check func(*settings) error
	// open is called with settings that check has accepted. It does not wait for servers.
	open func(*settings) (backend, error)
	// session is the session timeout that the settings ask for; nil for a backend without
	// sessions.
	session func(*settings) time.Duration
	// servers returns the servers that the settings name, "" for none, without passwords.
	servers func(*settings) string
}

// kinds are all backends. A new one is an entry here, and its flags in settings.
var kinds = map[string]kind{
	"changefeed": {
		like: (*feeds)(nil), check: checkChangefeed, open: openChangefeed,
		session: func(s *settings) time.Duration { return s.zookeeper.session },
		servers: func(s *settings) string { return storeurl.Redacted(s.changefeed.store) },
	},
	"console": {
		like: (*typed)(nil), check: func(*settings) error { return nil }, open: openConsole,
		servers: func(*settings) string { return "" },
	},
	"etcd": {
		like: (*etcdBackend)(nil), check: checkEtcd, open: openEtcd, session: (*settings).etcdTTL,
		servers: func(s *settings) string { return strings.Join(s.etcd.endpoints, ",") },
	},
	"raftlog": {
		like: (*raftPeer)(nil), check: checkRaftlog, open: openRaftlog,
		session: func(s *settings) time.Duration { return s.zookeeper.session },
		servers: func(s *settings) string { return strings.Join(s.raftlog.peers, ",") },
	},
	"zookeeper": {
		like: (*zookeeper)(nil), check: checkZooKeeper, open: openZooKeeper,
		session: func(s *settings) time.Duration { return s.zookeeper.session },
		servers: func(s *settings) string { return s.zookeeper.servers },
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
		return k, usage("--backend %s: not one of %s", s.backend, backendNames())
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

// advise adds to an error of zookeeper's permissions which setting has the credentials.
func (s *settings) advise(err error) error {
	switch {
	case s.backend != "zookeeper" || !errors.Is(err, leaderelection.ErrPermission):
		return err
	case s.zookeeper.auth == "":
		return fmt.Errorf("%w; there are no credentials: set ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth)", err)
	}
	return fmt.Errorf("%w; check the credentials in ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth)", err)
}

func (s *settings) open() (backend, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	return kinds[s.backend].open(s)
}

// openAs opens the backend for a command that needs a T. A kind of backend that is none is
// rejected before its settings are looked at; what says what the command does.
func openAs[T any](s *settings, what string) (T, error) {
	var none T
	k, err := s.kind()
	if err != nil {
		return none, err
	}
	if _, able := k.like.(T); !able {
		return none, s.lacking(what)
	}
	b, err := s.open()
	if err != nil {
		return none, err
	}
	return b.(T), nil
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
		log.Warn(text, "err", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}
