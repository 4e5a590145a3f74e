package recipes

import (
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
)

// Option is an option of every recipe: it can be passed wherever a package below this one accepts its
// own type Option, as far as the option is documented for the recipe. Options of one recipe cannot be
// passed to another: they have other types. The zero Option changes nothing.
type Option struct{ shared }

// shared is an unexported name for recipe.Shared, so that the documentation of Option does not list
// the methods by which Option implements the option types of all recipes.
type shared = recipe.Shared

// WithKazooLayout selects the znode names and data formats of kazoo, for recipes that kazoo has, so
// that programs that use it can share a recipe with programs that use this library. The default is
// the layout of Apache Curator and, for recipes that Curator does not have, this library's own.
//
// Recipes with a queue of contenders recognize the names of both libraries. Nevertheless, all
// programs that share a queue should use the same layout, because Curator and kazoo do not
// recognize each other's names.
func WithKazooLayout() Option { return Option{recipe.WithLayout(recipe.Kazoo)} }

// WithSessionTimeout limits leases as if the session timeout were d: they last at most d/2
// from the time at which the last confirmed check was sent. A shorter timeout ends holds
// earlier if ZooKeeper does not answer, and makes holders renew their leases more often. The
// default is the timeout that the servers have granted to the connection (see
// zkdial.Granted), or, as long as that is unknown, 4 s, the smallest timeout that servers
// grant by default.
//
// The option does not change the leases of other users of the same connection: each has
// leases according to its own option. The additional checks end with the lease that needs
// them.
//
// d must be at least 100 ms and at most the granted timeout; otherwise [ErrInvalid]
// is returned. If d proves to be longer than the granted timeout later, because the session
// did not exist yet or because a reconnect has changed the granted timeout, leases use the
// granted timeout and a warning is logged.
func WithSessionTimeout(d time.Duration) Option {
	return Option{func(s *recipe.Setup) { s.SetTimeout(d) }}
}

// WithCheckInterval sets how long holders wait after one check of their znodes was
// acknowledged before they send the next one. Each check is a write of the ensemble. The
// default is an eighth of the session timeout. A longer d reduces the checks, and leaves less
// time for a slow answer; more than a quarter of the session timeout counts as a quarter.
// See leaderelection.WithCheckInterval. A d of zero or less is an [ErrInvalid].
func WithCheckInterval(d time.Duration) Option {
	return Option{func(s *recipe.Setup) { s.SetCheckInterval(d) }}
}

// WithACL sets the ACL of the znodes that are created. The default grants all permissions
// to all clients. Participants need the permission to read, write and delete each other's
// znodes.
//
// The ACL of a recipe's node, and not those of its children, determines who may create and delete children. If
// another client has created the node, its ACL applies. So participants of locks, semaphores, queues, groups,
// double barriers and services, and writers of barriers, counters and values, read the ACL of the node once for
// each connection. They log a warning if this ACL grants the permission to create, delete, write or administer to
// a client to which acl does not grant the same permission. The scheme "auth" in acl means all clients with
// credentials. See [WithStrictACL] and docs/access.md.
func WithACL(acl []zk.ACL) Option { return Option{func(s *recipe.Setup) { s.ACL = acl }} }

// WithStrictACL makes the operations that [WithACL] lists return [ErrPermission], before they create
// anything in the node, if its ACL permits other clients more than the ACL of WithACL does. By default
// a warning is logged. Without WithACL, or with an ACL that grants all permissions to all clients, the
// option is an [ErrInvalid].
func WithStrictACL() Option { return Option{func(s *recipe.Setup) { s.StrictACL = true }} }

// WithEvents calls f with each event of a recipe, for metrics and logs, as Candidate.Events of package leaderelection
// delivers those of an election. The kinds of [event.Event] document when each is reported; counters and values report
// none. f is called by goroutines of the library, also by several at a time, and must not block: the recipe waits for
// it. Events of one hold, item, shard or znode are in order. Package electionprom counts them for Prometheus.
func WithEvents(f func(event.Event)) Option {
	return Option{func(s *recipe.Setup) {
		if s.Events = f; f == nil {
			s.Invalid("WithEvents(nil)")
		}
	}}
}

// WithLogger sets the logger. By default nothing is logged. The handler must not block.
func WithLogger(log *slog.Logger) Option { return Option{func(s *recipe.Setup) { s.Log = log }} }
