package lock

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/line"
	"github.com/go-leaderelection/leaderelection/internal/setup"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// settings are the options of this package.
type settings struct {
	name  string
	delay time.Duration
}

// WithName sets what [Contender.Name] shows of those who contend through this
// value: the data of their znodes, at most 64 KiB. The default is the name of the
// host and the number of the process.
func WithName(name string) recipes.Option {
	return setup.Own("lock.WithName", func(s *settings) { s.name = name })
}

// maxName is far below what a server takes in one request, a megabyte by default:
// it closes the connection at a longer one, each time.
const maxName = 64 << 10

// WithLockDelay keeps everybody from the lock for d after a hold has ended in any
// other way than by Release: its session has expired, its lease has lapsed, its
// znode was deleted, or its connection was closed. It is for resources that cannot
// check tokens: what the former holder had sent them has d to arrive.
//
// The delay is counted by the clock of the contender whose turn it is, from when it
// knows that. It is a matter of time, like the lease: what is under way for longer
// arrives too late. All who contend for the lock must be given the option, with the
// same d. Those who are not, and programs of Curator and kazoo, wait for nothing, and
// nobody waits for them. A grant takes two round trips more with it, and the lock
// leaves a znode behind after such an end, until the next grant; after that of a
// reader, whom other readers do not wait for, until the next writer's.
func WithLockDelay(d time.Duration) recipes.Option {
	return setup.Own("lock.WithLockDelay", func(s *settings) { s.delay = d })
}

var processName = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "-" + strconv.Itoa(os.Getpid())
})

// queue is a line at a lock's znode, and what all locks have in common.
type queue struct {
	at       *setup.Setup
	settings settings
	data     []byte // of the contenders' znodes
}

func newQueue(conn *zk.Conn, path string, opts []recipes.Option) (queue, error) {
	q := queue{settings: settings{name: processName()}}
	s, err := setup.NewOwn(conn, path, &q.settings, opts)
	switch {
	case err != nil:
		return q, err
	case q.settings.delay < 0:
		return q, fmt.Errorf("%w: lock.WithLockDelay(%v)", recipes.ErrInvalidOption, q.settings.delay)
	case len(q.settings.name) > maxName:
		return q, fmt.Errorf("%w: lock.WithName: %d bytes are more than %d", recipes.ErrInvalidOption, len(q.settings.name), maxName)
	}
	s.Log = s.Log.With("lock", path)
	q.at, q.data = s, []byte(q.settings.name)
	return q, nil
}

// naming is that of the layout of choice.
func (q *queue) naming(curator, kazoo line.Naming) line.Naming {
	if q.at.Layout == recipes.Kazoo {
		return kazoo
	}
	return curator
}

// config says how to stand in the line.
func (q *queue) config(curator, kazoo line.Naming) *line.Config {
	return &line.Config{
		Conn: q.at.Conn, Dir: q.at.Path, Naming: q.naming(curator, kazoo), Data: q.data, ACL: q.at.ACL, Timeout: q.at.Timeout,
		MakeDir: q.at.MakeDir, Log: q.at.Log,
	}
}

// blocked reports whether a newcomer would have to wait, for those whom blocks
// names; nil for anybody.
func (q *queue) blocked(ctx context.Context, blocks func(string) bool) (bool, error) {
	names, err := q.names(ctx)
	for _, name := range names {
		if blocks == nil || blocks(name) {
			return true, nil
		}
	}
	return false, err
}
