// Package recipe holds what recipes have in common: connection, path and options, and the children of a
// znode with their data, which groups and discovery follow.
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

// The layouts, which package recipes documents.
const (
	Curator Layout = iota
	Kazoo
)

// Setup is the connection of a recipe, its path and the values of its options.
type Setup struct {
	connection.Options
	Path   string
	Layout Layout
	// Events is the value of WithEvents, or nil.
	Events func(event.Event)

	own any // a pointer to the values of the options of one package; nil if it has none
}

// Own returns a function that sets an option of the recipes of one package, which call NewOwn with a *T.
// For other recipes of the package it is invalid. name is that of the function that users call.
func Own[T any](name string, set func(*T)) func(*Setup) {
	return func(s *Setup) {
		if own, ok := s.own.(*T); ok {
			set(own)
		} else {
			s.Invalid("%s does not apply to this recipe", name)
		}
	}
}

// New applies the options and returns an error if a parameter is invalid. It sends no request. O is the
// type of the options of the recipe's package, and apply its method.
func New[O any](conn *zk.Conn, path string, options []O, apply func(O, *Setup)) (*Setup, error) {
	return NewOwn[struct{}](conn, path, nil, options, apply)
}

// EachOption calls apply with each option, until the first error. A nil option is connection.ErrInvalid.
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

// NewOwn is New for a package with its own options. They set the fields of own.
func NewOwn[T, O any](conn *zk.Conn, path string, own *T, options []O, apply func(O, *Setup)) (*Setup, error) {
	if conn != nil && path == "/" {
		return nil, connection.CheckPath(path)
	}
	return NewReader(conn, path, own, options, apply)
}

// NewReader is NewOwn for recipes that write nothing. They accept the root as well.
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

// Contender returns the configuration of a contender with the connection and the options of the recipe. By
// default its queue is the znode of the recipe.
func (s *Setup) Contender(c contender.Config) *queue.Config {
	cfg := &queue.Config{Config: c, Options: s.Options}
	if cfg.Dir == "" {
		cfg.Dir, cfg.MakeDir = s.Path, s.MakeDir
	}
	return cfg
}

// SessionTimeout returns the current session timeout, as far as it is known.
func (s *Setup) SessionTimeout() time.Duration { return connection.SessionTimeout(s.Conn, s.Timeout) }

// MakeDir creates the node of the recipe, and its parents, as containers.
func (s *Setup) MakeDir(ctx context.Context) error {
	return connection.MakeZnode(ctx, s.Conn, s.Path, s.ACL, true)
}

// CheckAccess returns a connection.OpenError if other clients may change the znode at path, or create and
// delete its children. Without WithStrictACL it logs a warning. It sends a request on its first call for a
// znode, and only with WithACL. A missing znode is no error.
func (s *Setup) CheckAccess(ctx context.Context, path string) error {
	if s.CheckedZnode(path, 0) {
		return nil
	}
	return connection.Retry(ctx, s.Conn, func() error { return s.CheckZnode(path, 0) })
}

// CheckDir is CheckAccess before the caller creates children of the znode at path. If the znode does not
// exist, create must create it, perhaps after another client, and CheckDir then checks it. Without WithACL,
// it does nothing.
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

// Report passes an event to the function of WithEvents, if there is one. name is that of the recipe, whose path is
// that of the event by default. The caller holds no mutex.
func (s *Setup) Report(name string, e event.Event) {
	if s.Events != nil {
		e.Recipe, e.Path, e.Time = name, cmp.Or(e.Path, s.Path), time.Now()
		s.Events(e)
	}
}

// AcrossSessions calls join again while it fails because the caller's znode was lost, which isLost reports, so that
// a wait continues in the next session. It also returns if ctx is done, whose cause can be such an error: that of
// another znode.
func AcrossSessions[T any](ctx context.Context, isLost func(error) bool, join func() (T, error)) (T, error) {
	for {
		if v, err := join(); ctx.Err() != nil || !isLost(err) {
			return v, err
		}
	}
}

// SessionExpired is a function for AcrossSessions.
func SessionExpired(err error) bool { return errors.Is(err, connection.ErrSessionExpired) }

// Sync blocks until the server of the connection has applied all writes to path that were acknowledged
// before the call. After a reconnect the new server may lag behind the previous one.
func (s *Setup) Sync(ctx context.Context, path string) error {
	return connection.Retry(ctx, s.Conn, func() error {
		_, err := s.Conn.Sync(path)
		return err
	})
}

// Fail wraps err with the failed operation and its path, and with what connection.Refine and
// connection.Explain know about it. It returns nil if err is nil.
func Fail(conn *zk.Conn, operation, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", operation, path, connection.Explain(conn, connection.Refine(conn, err)))
}

// Fail is the function Fail for the connection of the recipe.
func (s *Setup) Fail(operation, path string, err error) error {
	return Fail(s.Conn, operation, path, err)
}

// Shared is an option of all recipes, with the methods of the type Option of each package. They are
// exported only because an interface of another package cannot have unexported ones of this package. A
// nil Shared changes nothing.
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

// WithLayout selects a layout.
func WithLayout(l Layout) Shared { return func(s *Setup) { s.Layout = l } }

// Settings returns an option that copies the values of the options of package recipes to another recipe,
// except WithEvents: a recipe does not report the events of the recipes that it uses.
func (s *Setup) Settings() Shared {
	return func(other *Setup) {
		other.ACL, other.StrictACL, other.Timeout, other.CheckInterval = s.ACL, s.StrictACL, s.Timeout, s.CheckInterval
		other.Layout, other.Log = s.Layout, s.Log
	}
}
