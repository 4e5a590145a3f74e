package recipe

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// Shared is an option of all recipes. It has the methods of the type Option of each package, which
// are exported only because an interface of another package cannot have unexported ones of this
// package. The zero Shared changes nothing.
type Shared struct{ set func(*Setup) }

func (o Shared) apply(s *Setup) {
	if o.set != nil {
		o.set(s)
	}
}

func (o Shared) ApplyBarrier(s *Setup)   { o.apply(s) }
func (o Shared) ApplyCache(s *Setup)     { o.apply(s) }
func (o Shared) ApplyCounter(s *Setup)   { o.apply(s) }
func (o Shared) ApplyDiscovery(s *Setup) { o.apply(s) }
func (o Shared) ApplyGroup(s *Setup)     { o.apply(s) }
func (o Shared) ApplyLock(s *Setup)      { o.apply(s) }
func (o Shared) ApplyQueue(s *Setup)     { o.apply(s) }
func (o Shared) ApplyValue(s *Setup)     { o.apply(s) }

// WithLayout selects a layout.
func WithLayout(l Layout) Shared { return Shared{func(s *Setup) { s.Layout = l }} }

// WithTimeout is recipes.WithSessionTimeout.
func WithTimeout(d time.Duration) Shared {
	return Shared{func(s *Setup) {
		if s.Timeout = d; d < 100*time.Millisecond && s.err == nil {
			s.err = fmt.Errorf("%w: WithSessionTimeout(%v): must be at least 100ms", zkerror.ErrInvalid, d)
		}
	}}
}

// WithCheckInterval is recipes.WithCheckInterval.
func WithCheckInterval(d time.Duration) Shared {
	return Shared{func(s *Setup) {
		if s.CheckInterval = d; d <= 0 && s.err == nil {
			s.err = fmt.Errorf("%w: WithCheckInterval(%v): it must be positive", zkerror.ErrInvalid, d)
		}
	}}
}

// WithACL is recipes.WithACL.
func WithACL(acl []zk.ACL) Shared { return Shared{func(s *Setup) { s.ACL = acl }} }

// WithStrictACL is recipes.WithStrictACL.
func WithStrictACL() Shared { return Shared{func(s *Setup) { s.StrictACL = true }} }

// WithLogger is recipes.WithLogger.
func WithLogger(log *slog.Logger) Shared { return Shared{func(s *Setup) { s.Log = log }} }

// Settings returns an option that copies the values of the options of package recipes to another
// recipe.
func (s *Setup) Settings() Shared {
	return Shared{func(other *Setup) {
		other.ACL, other.StrictACL, other.Timeout, other.CheckInterval = s.ACL, s.StrictACL, s.Timeout, s.CheckInterval
		other.Layout, other.Log = s.Layout, s.Log
	}}
}
