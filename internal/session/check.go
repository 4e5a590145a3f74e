package session

import (
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
)

// checkBytes bounds the paths of one check transaction, far below the megabyte
// that a server accepts.
const checkBytes = 256 << 10

// checked is the outcome of one check.
type checked struct {
	sent    time.Time
	session int64
	missing []string
}

// check sends one check of everything to prove. The caller holds mu.
func (m *monitor) check(now time.Time) <-chan request.Answer[checked] {
	paths := make([]string, 0, len(m.proving))
	for path := range m.proving {
		paths = append(paths, path)
	}
	m.checking, m.checkNow, m.lastCheck = true, false, now
	session := m.seen.session
	return request.Start(func() (checked, error) {
		missing, err := confirm(m.conn, paths)
		return checked{now, session, missing}, err
	})
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
