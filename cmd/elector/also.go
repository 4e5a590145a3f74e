package main

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/migration"
)

const (
	flagAlso         = "also"
	flagAlsoElection = "also-election"
)

// also contains the flags of a migration: a second backend, on which this instance leads as well.
type also struct {
	backend  string // "" without a migration
	election string // "" for the name of --election

	candidate atomic.Pointer[migration.Candidate] // the newest candidate of both backends
	last      atomic.Pointer[alsoToken]           // the last result of token
}

// alsoToken is the token on the second backend of a leadership on both.
type alsoToken struct {
	leadership *leaderelection.Leadership
	token      int64
}

// token returns the token of l on the second backend. known is false without a migration. The last token remains
// known after l has ended, so that the end command receives it even if the candidate leads again.
func (a *also) token(l *leaderelection.Leadership) (token int64, known bool) {
	if c := a.candidate.Load(); c != nil {
		if _, second := c.Leaderships(l); second != nil {
			a.last.Store(&alsoToken{l, second.Token()})
		}
	}
	last := a.last.Load()
	if last == nil || last.leadership != l {
		return 0, false
	}
	return last.token, true
}

func (a *also) register(flags *pflag.FlagSet) {
	flags.StringVar(&a.backend, flagAlso, "", "second backend, to which the election is moved from --backend: this instance leads only while it leads on both. Its servers are given by the flags of that backend")
	flags.StringVar(&a.election, flagAlsoElection, "", "name of the election on the backend of --also (default: that of --election)")
}

// settings returns the settings of the second backend.
func (a *also) settings(s *settings) *settings {
	second := *s
	second.backend, second.election, second.isSecond = a.backend, cmp.Or(a.election, s.election), true
	return &second
}

// check returns a usage error if the flags are invalid, or are not needed. checkBackend checks the settings of one
// backend.
func (a *also) check(s *settings, checkBackend func(*settings) error) error {
	switch {
	case a.backend == "" && a.election != "":
		return usage("--also-election %s: it needs --also, for example --also etcd", a.election)
	case a.backend == "":
		return nil
	case a.backend == s.backend:
		return usage("--also %s: it is the backend of --backend: an election can only be moved to another kind of backend, for example --also %s", a.backend, otherBackend(s.backend))
	case backendKinds[a.backend].open == nil:
		return usage("--also %s: not one of this build's backends: %s", a.backend, backendNames())
	}
	return checkBackend(a.settings(s))
}

// otherBackend returns the name of a backend for an example.
func otherBackend(backend string) string {
	if backend == "zookeeper" {
		return "etcd"
	}
	return "zookeeper"
}

// openRun opens the backend for the command run. If there is a second one, a candidate leads only while it leads on
// both, and the leader that others observe is that of the first.
func (a *also) openRun(s *settings) (backend, error) {
	first, err := s.openRun()
	if err != nil || a.backend == "" {
		return first, err
	}
	second, err := a.settings(s).openRun()
	if err != nil {
		first.close()
		return backend{}, err
	}
	return a.combine(s, first, second), nil
}

// combine returns a backend whose candidates must lead on both backends. It lists and observes the candidates of
// the first.
func (a *also) combine(s *settings, first, second backend) backend {
	b := first
	b.close = func() {
		second.close()
		first.close()
	}
	b.sessionTimeout = func() time.Duration { return min(first.timeout(s), second.timeout(s)) }
	b.awaitSession = func(ctx context.Context) error {
		for _, await := range []func(context.Context) error{first.awaitSession, second.awaitSession} {
			if await == nil {
				continue
			}
			if err := await(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	b.connected = func() error { return errors.Join(first.checkConnected(), second.checkConnected()) }
	b.healthy = func() error {
		var errs []error
		for _, healthy := range []func() error{first.healthy, second.healthy} {
			if healthy != nil {
				errs = append(errs, healthy())
			}
		}
		return errors.Join(errs...)
	}
	b.newCandidate = func(ctx context.Context) (leaderelection.Candidate, error) {
		// The backends leave a program this part of the session timeout to stop. See leaseMargin.
		grace := max(first.timeout(s), second.timeout(s)) / leaseMargin
		candidate, err := migration.NewCandidate(ctx, first.newCandidate, second.newCandidate,
			migration.WithGrace(grace), migration.WithLogger(s.electionLog()))
		if err != nil {
			return nil, err
		}
		a.candidate.Store(candidate)
		return candidate, nil
	}
	return b
}

// timeout returns the session timeout that was granted, or 0 if it is not known yet. Without a method, it is that of
// the settings.
func (b backend) timeout(s *settings) time.Duration {
	if b.sessionTimeout == nil {
		return s.requestedTimeout()
	}
	return b.sessionTimeout()
}
