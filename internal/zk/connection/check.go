package connection

import (
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// checkBytes limits the total length of the paths in one check transaction, far below the
// megabyte that a server accepts.
const checkBytes = 256 << 10

// checked is the result of a check.
type checked struct {
	sent      time.Time
	acked     time.Time
	session   int64
	missing   []string
	observers []observer
}

// Check is the result of a check, for one subscription.
type Check struct {
	Sent time.Time
	// Err is nil if the check has renewed the lease.
	Err error
}

// observer is the callback of a subscription.
type observer struct {
	path  string
	check func(Check)
}

// OnCheck sets a function that is called after each check of the subscription's znode, on the
// goroutine of the monitor. It must be set before Prove, and must not block. It may be called
// during Close, and after it if other subscriptions use the connection.
func (s *Subscription) OnCheck(f func(Check)) { s.onCheck = f }

// check sends a check of the znodes of all subscriptions that require a lease. The caller holds mu.
func (m *monitor) check(now time.Time) <-chan Answer[checked] {
	paths := make([]string, 0, len(m.proving))
	var observers []observer
	for path, s := range m.proving {
		paths = append(paths, path)
		if s.onCheck != nil {
			observers = append(observers, observer{path, s.onCheck})
		}
	}
	m.checking, m.checkNow, m.lastCheck = true, false, now
	session, ctx, conn := m.seen.Session, m.ctx, m.conn
	return Start(func() (checked, error) {
		missing, err := confirm(conn, paths)
		err = Reject(ctx, conn, err)
		return checked{now, time.Now(), session, missing, observers}, err
	})
}

// report calls the observers of a check that ended with err.
func (r *checked) report(err error) {
	for _, o := range r.observers {
		c := Check{r.sent, err}
		if slices.Contains(r.missing, o.path) {
			c.Err = zkerror.ErrDeleted
		}
		o.check(c)
	}
}

// confirm checks that paths exist, in one transaction if all do, and returns those that do not
// exist. A check that the ensemble rejects for another reason, such as a missing permission, is
// not an error, because the reply was a quorum decision as well.
func confirm(conn *zk.Conn, paths []string) (missing []string, err error) {
	for len(paths) > 0 {
		var ops []any
		for size := 0; len(ops) < len(paths) && size <= checkBytes; {
			path := paths[len(ops)]
			size += len(path)
			ops = append(ops, &zk.CheckVersionRequest{Path: path, Version: -1})
		}
		responses, err := conn.Multi(ops...)
		if err == nil {
			paths = paths[len(ops):]
			continue
		}
		// Operations before the failed one have no error. All later ones have the error that
		// an earlier one failed.
		failed := slices.IndexFunc(responses, func(r zk.MultiResponse) bool { return r.Error != nil })
		if failed < 0 || Transient(err) {
			return missing, err
		}
		if errors.Is(responses[failed].Error, zk.ErrNoNode) {
			missing = append(missing, paths[failed])
		}
		paths = slices.Delete(slices.Clone(paths), failed, failed+1)
	}
	return missing, nil
}
