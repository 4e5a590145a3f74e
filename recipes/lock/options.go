package lock

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Option is an option of a lock: [WithName], [WithLockDelay] of a [Mutex] or an [RWMutex], [WithNamePrefix] of a
// [Mutex], [WithCuratorLayout] and [WithSharedCount] of a [Semaphore], and every [recipes.Option]. A [Single]
// accepts only a [recipes.Option].
type Option interface{ ApplyLock(*recipe.Setup) }

// ownOption is an option of this package.
type ownOption func(*recipe.Setup)

func (o ownOption) ApplyLock(s *recipe.Setup) { o(s) }

// settings contains the values of the options of this package.
type settings struct {
	name    string
	delay   time.Duration
	naming  contender.Naming // set by WithNamePrefix; empty without it
	curator bool             // whether to use the protocol of Curator's semaphore
	count   string           // path of the SharedCount with the limit of a semaphore; empty without WithSharedCount

	used []string // names of the options that were given, except WithName, which newQueue always accepts
}

// newOption returns an option of this package. A constructor rejects the option unless the constructor accepts
// options with this name.
func newOption(name string, set func(*settings)) Option {
	return ownOption(recipe.Own(name, func(s *settings) {
		s.used = append(s.used, name)
		set(s)
	}))
}

// WithName sets the [Contender.Name] of the contenders for which this lock value is used. The name is the data
// of their znodes, of at most 64 KiB. The default is the host name and the process ID.
func WithName(name string) Option {
	return ownOption(recipe.Own("lock.WithName", func(s *settings) { s.name = name }))
}

// WithNamePrefix names the znodes of the contenders of a [Mutex] as a hand-written lock does: prefix followed by
// the sequence number that ZooKeeper appends, for instance "lock-0000000042". If prefix begins with "_c_*-", 32
// random hexadecimal digits replace the asterisk: "_c_*-lock-" is the prefix of zk.Lock of go-zookeeper. So a
// lock can be migrated to this library process by process, if the other programs do not recognize the names of
// this library. The option cannot be combined with [WithLockDelay].
//
// Without random digits, a name can occur again if the znode of the lock is deleted and created again, as ZooKeeper
// does with an unused container: a delayed transaction of [Hold.Multi] is applied if another client has the same
// name by then. Programs that use zk.Lock on the same connection must use other data ([WithName]).
func WithNamePrefix(prefix string) Option {
	return newOption(withNamePrefix, func(s *settings) { s.naming = contender.NamingOf(prefix) })
}

// maxName is far below the size of a request that a server accepts, one megabyte by default. A server closes
// the connection when it receives a larger request, and would close it again at each retry.
const maxName = 64 << 10

// WithLockDelay delays the next acquisition by d if a hold has ended without Release: because its session or
// its lease has expired, its znode was deleted, or its connection was closed. The option is meant for resources
// that cannot check tokens: requests of the former holder have the time d to arrive.
//
// The delay is measured by the clock of the next contender, from the time at which it reaches the head of the
// queue. The delay gives no guarantee for requests that take longer. All contenders of the lock must use the
// option, with the same d. Contenders without it, including programs that use Curator or kazoo, do not wait.
// They create no marker, so no contender waits after one of them has lost the lock. The option adds two round
// trips to each acquisition. After a hold that ended without Release, a marker znode remains until the next
// acquisition, or, after the hold of a reader, until the next acquisition by a writer.
//
// Do not use the option while programs with zk.Lock of go-zookeeper use the same lock:
// zk.Lock fails if it finds a marker, and leaves a znode that blocks the lock until its
// session ends.
func WithLockDelay(d time.Duration) Option {
	return newOption(withLockDelay, func(s *settings) { s.delay = d })
}

// Names of the options that not all locks accept.
const (
	withNamePrefix    = "lock.WithNamePrefix"
	withLockDelay     = "lock.WithLockDelay"
	withCuratorLayout = "lock.WithCuratorLayout"
	withSharedCount   = "lock.WithSharedCount"
)

// processName returns the default of WithName: the host name and the process ID.
var processName = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "-" + strconv.Itoa(os.Getpid())
})

// lockQueue is the queue of a lock: its znode, the options, and the methods that all locks have
// in common.
type lockQueue struct {
	setup    *recipe.Setup
	settings settings
	data     []byte // data of the contenders' znodes
	rotation *queue.Rotation
}

// newQueue returns the queue of a lock. The lock accepts the options whose names are in accepted.
func newQueue(conn *zk.Conn, path, kind string, opts []Option, accepted ...string) (lockQueue, error) {
	q := lockQueue{settings: settings{name: processName()}}
	s, err := recipe.NewOwn(conn, path, &q.settings, opts, Option.ApplyLock)
	for _, name := range q.settings.used {
		if err == nil && !slices.Contains(accepted, name) {
			err = fmt.Errorf("%w: %s does not apply to this %s", recipes.ErrInvalid, name, kind)
		}
	}
	switch {
	case err != nil:
		return q, err
	case q.settings.delay < 0:
		return q, fmt.Errorf("%w: lock.WithLockDelay(%v): must not be negative", recipes.ErrInvalid, q.settings.delay)
	case len(q.settings.name) > maxName:
		return q, fmt.Errorf("%w: lock.WithName: %d bytes exceed the limit of %d", recipes.ErrInvalid, len(q.settings.name), maxName)
	case q.settings.naming != "":
		err := q.settings.naming.Check()
		if err == nil {
			// The prefix must consist of characters that are valid in a path.
			err = connection.CheckPath("/" + string(q.settings.naming))
		}
		switch {
		case err != nil:
			return q, fmt.Errorf("%w: lock.WithNamePrefix: %w", recipes.ErrInvalid, err)
		case q.settings.delay > 0, s.Layout == recipe.Kazoo:
			return q, fmt.Errorf("%w: lock.WithNamePrefix: cannot be combined with WithLockDelay or WithKazooLayout", recipes.ErrInvalid)
		}
	}
	s.Log = s.Log.With(kind, path)
	q.setup, q.data, q.rotation = s, []byte(q.settings.name), new(queue.Rotation)
	return q, nil
}

// naming returns the names that WithNamePrefix sets. Without that option it returns curator or kazoo, as the
// layout requires.
func (q *lockQueue) naming(curator, kazoo contender.Naming) contender.Naming {
	if q.settings.naming != "" {
		return q.settings.naming
	}
	if q.setup.Layout == recipe.Kazoo {
		return kazoo
	}
	return curator
}

// config returns the configuration of a contender for this lock. naming chooses between the names curator and
// kazoo.
func (q *lockQueue) config(curator, kazoo contender.Naming) *queue.Config {
	cfg := q.setup.Contender(contender.Config{Naming: q.naming(curator, kazoo)})
	cfg.Data, cfg.Stamp, cfg.Rotation = q.data, true, q.rotation
	return cfg
}

// mustWait reports whether a new contender would have to wait for a contender for which blocks is
// true, or for any contender if blocks is nil.
func (q *lockQueue) mustWait(ctx context.Context, blocks func(string) bool) (bool, error) {
	names, err := q.contenderNames(ctx)
	for _, name := range names {
		if blocks == nil || blocks(name) {
			return true, nil
		}
	}
	return false, err
}
