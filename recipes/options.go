package recipes

import (
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/setup"
)

// Option changes how a recipe works; all recipes understand all of them.
type Option = setup.Option

// Layout is whose znode names and data formats a recipe uses, so that programs
// of other libraries can take part. Names of both are understood in any case
// where recipes stand in line; programs that take part in one line must agree
// on one of them all the same, because neither of those libraries understands
// the other's names.
type Layout = setup.Layout

const (
	// Curator is the layout of Apache Curator; where that has none, it is this
	// library's own. It is the default.
	Curator = setup.Curator
	// Kazoo is the layout of kazoo, of recipes that kazoo has.
	Kazoo = setup.Kazoo
)

// WithLayout sets the layout.
func WithLayout(l Layout) Option { return func(s *setup.Setup) { s.Layout = l } }

// WithSessionTimeout has leases last as if the session had this timeout: grants end
// earlier then when ZooKeeper does not answer, and each holder writes more often. By
// default the timeout is used that the servers have granted to the connection (see
// zkdial.Granted); 4 s, the smallest that servers grant by default, as long as it is
// not known.
//
// At least 100 ms, and not more than was granted: a longer one is rejected with
// [ErrInvalidOption]. If it turns out to be longer only later, because there was no
// session yet or a reconnect has changed the granted timeout, leases are shortened to
// what was granted and a warning is logged.
func WithSessionTimeout(d time.Duration) Option {
	return setup.WithTimeout(d)
}

// WithACL sets the ACL of the znodes that are created; by default everybody may
// do everything. Participants need to read, write and delete each other's.
func WithACL(acl []zk.ACL) Option { return func(s *setup.Setup) { s.ACL = acl } }

// WithLogger sets where to log; by default nothing is logged. The handler must
// not block.
func WithLogger(log *slog.Logger) Option { return func(s *setup.Setup) { s.Log = log } }
