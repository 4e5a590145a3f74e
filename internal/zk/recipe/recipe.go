// Package recipe is what every recipe is given besides its connection and path.
package recipe

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/internal/zk/znode"
)

// Layout is whose names and data formats a recipe uses.
type Layout int

// The layouts, documented in package recipes.
const (
	Curator Layout = iota
	Kazoo
)

// Setup is a recipe's connection, its place and the options.
type Setup struct {
	Conn    *zk.Conn
	Path    string
	ACL     []zk.ACL
	Timeout time.Duration // that WithSessionTimeout states, 0 without it
	// CheckInterval is the time between the checks that renew a lease, 0 for the default.
	CheckInterval time.Duration
	Layout        Layout
	Log           *slog.Logger

	own any   // what the recipe's own options set, a pointer; nil if it has none
	err error // of the first option that cannot be used here
}

// Option is recipes.Option.
type Option func(*Setup)

// Own makes an option that only the recipes of one package understand, those that
// are made by NewOwn with a *T. name is what users call it.
func Own[T any](name string, set func(*T)) Option {
	return func(s *Setup) {
		if own, ok := s.own.(*T); ok {
			set(own)
		} else if s.err == nil {
			s.err = fmt.Errorf("%w: %s does not apply to this recipe", zkerror.ErrInvalidOption, name)
		}
	}
}

// New applies the options and refuses what cannot work. It sends no request.
func New(conn *zk.Conn, path string, options []Option) (*Setup, error) {
	return NewOwn[struct{}](conn, path, nil, options)
}

// NewOwn is New for a recipe with options of its own (Own), which are set in own.
func NewOwn[T any](conn *zk.Conn, path string, own *T, options []Option) (*Setup, error) {
	if conn == nil {
		return nil, zkerror.ErrNilConn
	}
	if err := znode.CheckPath(path); err != nil {
		return nil, err
	}
	s := &Setup{
		Conn: conn, Path: path, ACL: zk.WorldACL(zk.PermAll),
		Log: slog.New(slog.DiscardHandler), own: own,
	}
	for _, o := range options {
		if o == nil {
			return nil, fmt.Errorf("%w: an option is nil", zkerror.ErrInvalidOption)
		}
		o(s)
	}
	switch {
	case s.err != nil:
		return nil, s.err
	case s.Log == nil:
		return nil, fmt.Errorf("%w: WithLogger(nil)", zkerror.ErrInvalidOption)
	case len(s.ACL) == 0:
		return nil, fmt.Errorf("%w: WithACL: the list is empty", zkerror.ErrInvalidOption)
	case s.Layout != Curator && s.Layout != Kazoo:
		return nil, fmt.Errorf("%w: WithLayout(%d)", zkerror.ErrInvalidOption, s.Layout)
	}
	if err := session.Validate(conn, s.Timeout); err != nil {
		return nil, fmt.Errorf("%w: WithSessionTimeout(%v): %w", zkerror.ErrInvalidOption, s.Timeout, err)
	}
	return s, nil
}

// WithTimeout is recipes.WithSessionTimeout.
func WithTimeout(d time.Duration) Option {
	return func(s *Setup) {
		if s.Timeout = d; d < 100*time.Millisecond && s.err == nil {
			s.err = fmt.Errorf("%w: WithSessionTimeout(%v): must be at least 100ms", zkerror.ErrInvalidOption, d)
		}
	}
}

// WithCheckInterval is recipes.WithCheckInterval.
func WithCheckInterval(d time.Duration) Option {
	return func(s *Setup) {
		if s.CheckInterval = d; d <= 0 && s.err == nil {
			s.err = fmt.Errorf("%w: WithCheckInterval(%v): it must be positive", zkerror.ErrInvalidOption, d)
		}
	}
}

// Subscribe watches the session of the connection.
func (s *Setup) Subscribe() *session.Subscription {
	sub := session.Subscribe(s.Conn, s.Timeout)
	sub.CheckEvery(s.CheckInterval)
	sub.LogTo(s.Log)
	return sub
}

// SessionTimeout is the session timeout to use now, as far as it is known.
func (s *Setup) SessionTimeout() time.Duration { return session.Timeout(s.Conn, s.Timeout) }

// MakeDir creates the recipe's node, as a container that the ensemble removes
// when it has been empty for a while, and its parents.
func (s *Setup) MakeDir(ctx context.Context) error {
	return znode.Make(ctx, s.Conn, s.Path, s.ACL, true)
}

// Fail says what was tried on what, and gives err its place among the errors
// that users know.
func Fail(doing, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", doing, path, zkerror.Refine(err))
}
