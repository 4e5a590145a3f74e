package session

import (
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// checkBytes bounds the paths of one check transaction, far below the megabyte
// that a server accepts.
const checkBytes = 256 << 10

// checked is the outcome of one check.
type checked struct {
	sent      time.Time
	acked     time.Time
	session   int64
	missing   []string
	observers []observer
}

// Check is the outcome of one check, for one of those whose path it contained.
type Check struct {
	Sent time.Time
	// Err is nil when the check has proven the session's life.
	Err error
}

// observer wants to hear of the checks of its path.
type observer struct {
	path  string
	heard func(Check)
}

// OnCheck has f called after each check of the path that Prove is given. It is
// to be set before Prove, and called on the monitor's goroutine without a lock:
// it must return at once. A call may still come while Close is under way, and
// after it where others go on to use the connection.
func (s *Subscription) OnCheck(f func(Check)) { s.onCheck = f }

// check sends one check of everything to prove. The caller holds mu.
func (m *monitor) check(now time.Time) <-chan request.Answer[checked] {
	paths := make([]string, 0, len(m.proving))
	var observers []observer
	for path, s := range m.proving {
		paths = append(paths, path)
		if s.onCheck != nil {
			observers = append(observers, observer{path, s.onCheck})
		}
	}
	m.checking, m.checkNow, m.lastCheck = true, false, now
	session := m.seen.session
	return request.Start(func() (checked, error) {
		missing, err := confirm(m.conn, paths)
		return checked{now, time.Now(), session, missing, observers}, err
	})
}

// report tells the observers of a check that ended with err.
func (r *checked) report(err error) {
	for _, o := range r.observers {
		c := Check{r.sent, err}
		if slices.Contains(r.missing, o.path) {
			c.Err = zkerror.ErrDeleted
		}
		o.heard(c)
	}
}

// confirm has the ensemble confirm that paths exist, in one transaction where
// all do, and returns those that do not. What the ensemble refuses to check,
// for lack of permission say, is no reason for an error: such an answer has
// gone through the quorum too.
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
		// Those before the one that failed have no error, those after it the
		// error that says just this; it is the last failure by itself.
		failed := slices.IndexFunc(responses, func(r zk.MultiResponse) bool { return r.Error != nil })
		if failed < 0 || request.Transient(err) {
			return missing, err
		}
		if errors.Is(responses[failed].Error, zk.ErrNoNode) {
			missing = append(missing, paths[failed])
		}
		paths = slices.Delete(slices.Clone(paths), failed, failed+1)
	}
	return missing, nil
}
