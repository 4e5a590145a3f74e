// Package recipe implements what recipes have in common: the connection, the path and the options of a recipe, and
// the read of a znode's children with their data, which groups and discovery follow.
package recipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
)

// Layout selects the library whose znode names and data formats a recipe uses.
type Layout int

// The layouts. The documentation of package recipes describes them.
const (
	Curator Layout = iota
	Kazoo
)

// Setup contains the connection of a recipe, its path and the values of its options.
type Setup struct {
	connection.Options
	Path   string
	Layout Layout
	// Events is the function of WithEvents, or nil.
	Events func(event.Event)

	own any // a pointer to the values of the options of one package; nil if the package adds no options
}

// Own returns a function that applies an option of the recipes of one package, which pass a *T to NewOwn. Other
// recipes reject this option as invalid. name is the name of the function with which users create the option.
func Own[T any](name string, set func(*T)) func(*Setup) {
	return func(s *Setup) {
		if own, ok := s.own.(*T); ok {
			set(own)
		} else {
			s.Invalid("%s does not apply to this recipe", name)
		}
	}
}

// New applies the options, and returns an error if a parameter is invalid. It sends no request. O is the type of
// the options in the package of the recipe, and apply is the method of O that applies an option.
func New[O any](conn *zk.Conn, path string, options []O, apply func(O, *Setup)) (*Setup, error) {
	return NewOwn[struct{}](conn, path, nil, options, apply)
}

// EachOption calls apply with each option, until the first error. It returns connection.ErrInvalid for a nil
// option.
func EachOption[O any](options []O, apply func(O) error) error {
	for _, o := range options {
		if any(o) == nil {
			return fmt.Errorf("%w: an option is nil", connection.ErrInvalid)
		}
		if err := apply(o); err != nil {
			return err
		}
	}
	return nil
}

// NewOwn is like New, for a package with its own options, which set the fields of own.
func NewOwn[T, O any](conn *zk.Conn, path string, own *T, options []O, apply func(O, *Setup)) (*Setup, error) {
	if conn != nil && path == "/" {
		return nil, connection.CheckPath(path)
	}
	return NewReader(conn, path, own, options, apply)
}

// NewReader is like NewOwn, for recipes that write nothing. Such recipes also accept the root as their path.
func NewReader[T, O any](conn *zk.Conn, path string, own *T, options []O, apply func(O, *Setup)) (*Setup, error) {
	if conn == nil {
		return nil, connection.ErrNilConn
	}
	if err := connection.CheckPath(path); err != nil && path != "/" {
		return nil, err
	}
	s := &Setup{Path: path, own: own}
	s.Conn, s.ACL, s.Log = conn, zk.WorldACL(zk.PermAll), slog.New(slog.DiscardHandler)
	if err := EachOption(options, func(o O) error { apply(o, s); return nil }); err != nil {
		return nil, err
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	return s, nil
}

// Contender returns the configuration of a contender with the connection and the options of the recipe. If c
// contains no Dir, the queue is the znode of the recipe.
func (s *Setup) Contender(c contender.Config) *queue.Config {
	cfg := &queue.Config{Config: c, Options: s.Options}
	if cfg.Dir == "" {
		cfg.Dir, cfg.MakeDir = s.Path, s.MakeDir
	}
	return cfg
}

// SessionTimeout returns the current session timeout, as far as it is known.
func (s *Setup) SessionTimeout() time.Duration { return connection.SessionTimeout(s.Conn, s.Timeout) }

// MakeDir creates the znode of the recipe, and its parents, as containers.
func (s *Setup) MakeDir(ctx context.Context) error {
	return connection.MakeZnode(ctx, s.Conn, s.Path, s.ACL, true)
}

// CheckAccess returns a connection.OpenError if other clients may change the znode at path, or create and delete
// children of this znode. Without WithStrictACL, it logs a warning instead. CheckAccess sends a request only in its
// first call for a znode, and only with WithACL. A missing znode is no error.
func (s *Setup) CheckAccess(ctx context.Context, path string) error {
	if s.CheckedZnode(path, 0) {
		return nil
	}
	return connection.Retry(ctx, s.Conn, func() error { return s.CheckZnode(path, 0) })
}

// CheckDir calls CheckAccess before the caller creates children of the znode at path. If the znode does not exist,
// CheckDir calls create, which must create the znode unless another client creates it, and then calls CheckAccess.
// Without WithACL, CheckDir does nothing.
func (s *Setup) CheckDir(ctx context.Context, path string, create func(context.Context) error) error {
	for !s.CheckedZnode(path, 0) {
		err := s.CheckAccess(ctx, path)
		if err == nil && !s.CheckedZnode(path, 0) {
			err = create(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Report passes an event to the function of WithEvents, if the user has set one. name is the name of the recipe. If
// the event contains no path, Report sets the path of the recipe. The caller must hold no mutex.
func (s *Setup) Report(name string, e event.Event) {
	if s.Events != nil {
		e.Recipe, e.Path, e.Time = name, cmp.Or(e.Path, s.Path), time.Now()
		s.Events(e)
	}
}

// AcrossSessions calls join again while join fails because the caller's znode was lost, so that a wait continues in
// the next session. isLost reports whether an error means such a loss. AcrossSessions also returns if ctx is done:
// the cause of ctx can be an error for which isLost returns true, because another znode was lost.
func AcrossSessions[T any](ctx context.Context, isLost func(error) bool, join func() (T, error)) (T, error) {
	for {
		if v, err := join(); ctx.Err() != nil || !isLost(err) {
			return v, err
		}
	}
}

// SessionExpired reports whether err wraps connection.ErrSessionExpired. Callers pass it to AcrossSessions.
func SessionExpired(err error) bool { return errors.Is(err, connection.ErrSessionExpired) }

// Sync blocks until the server of the connection has applied all writes to path that the servers had acknowledged
// before the call. After a reconnect the new server may lag behind the previous server.
func (s *Setup) Sync(ctx context.Context, path string) error {
	return connection.Retry(ctx, s.Conn, func() error {
		_, err := s.Conn.Sync(path)
		return err
	})
}

// Fail returns err with the failed operation, its path, and what connection.Refine and connection.Explain add. It
// returns nil if err is nil.
func Fail(conn *zk.Conn, operation, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", operation, path, connection.Explain(conn, connection.Refine(conn, err)))
}

// Fail calls the function Fail with the connection of the recipe.
func (s *Setup) Fail(operation, path string, err error) error {
	return Fail(s.Conn, operation, path, err)
}

// Shared is an option of all recipes. Its methods are the methods of the type Option of each package. They are
// exported only because an interface of another package cannot contain unexported methods of this package. A nil
// Shared changes nothing.
type Shared func(*Setup)

func (o Shared) apply(s *Setup) {
	if o != nil {
		o(s)
	}
}

func (o Shared) ApplyBarrier(s *Setup)   { o.apply(s) }
func (o Shared) ApplyCache(s *Setup)     { o.apply(s) }
func (o Shared) ApplyCounter(s *Setup)   { o.apply(s) }
func (o Shared) ApplyDiscovery(s *Setup) { o.apply(s) }
func (o Shared) ApplyGroup(s *Setup)     { o.apply(s) }
func (o Shared) ApplyShard(s *Setup)     { o.apply(s) }
func (o Shared) ApplyLock(s *Setup)      { o.apply(s) }
func (o Shared) ApplyQueue(s *Setup)     { o.apply(s) }
func (o Shared) ApplyValue(s *Setup)     { o.apply(s) }

// WithLayout returns an option that selects a layout.
func WithLayout(l Layout) Shared { return func(s *Setup) { s.Layout = l } }

// Settings returns an option that gives another recipe the values of the options of s, except of WithEvents: a
// recipe does not report the events of the recipes that it uses.
func (s *Setup) Settings() Shared {
	return func(other *Setup) {
		other.ACL, other.StrictACL, other.Timeout, other.CheckInterval = s.ACL, s.StrictACL, s.Timeout, s.CheckInterval
		other.Layout, other.Log = s.Layout, s.Log
	}
}
