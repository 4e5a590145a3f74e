package lock

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// The marks of holders: what follows is the GUID of the contender's name. No
// contender's name begins so, in nobody's layout, and Curator sorts it to the end.
const (
	writerMark = contender.HeldToWrite
	readerMark = contender.HeldToRead
)

// delayed stands between the line and a turn, and lets no proof pass before the
// contender has waited for the lock-delay, where there is one, and has left its
// mark. What it does about that it does on a goroutine of its own, which ends with
// the place.
type delayed struct {
	ctx   context.Context // the place's
	cfg   *queue.Config
	delay time.Duration
	next  func(queue.State)
	stop  context.CancelCauseFunc

	mu     sync.Mutex
	latest queue.State
	ready  bool
	name   string        // of the mark, once it may exist
	over   chan struct{} // closed when the goroutine has ended; nil before there is one
}

// changed takes the line's reports.
func (d *delayed) changed(s queue.State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latest = s
	if s.First && d.over == nil {
		d.over = make(chan struct{})
		go d.claim(s.Path, time.Now())
	}
	d.pass()
}

// pass tells the turn what it may know. The caller holds mu.
func (d *delayed) pass() {
	s := d.latest
	s.Proven = s.Proven && d.ready
	d.next(s)
}

// claim waits and leaves the mark. The contender is the first since the given time.
func (d *delayed) claim(own string, since time.Time) {
	defer close(d.over)
	err := d.mark(own, since)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.ready = true
		d.pass()
	case !errors.Is(err, zkerror.ErrDeleted): // the line tells of that
		d.stop(err)
	}
}

// mark creates the own mark once no other one stands in the way, and takes those away
// that were waited for. The mark's name is used once: where it exists, an earlier
// try was carried out.
func (d *delayed) mark(own string, since time.Time) error {
	name := markOf(path.Base(own))
	for {
		children, err := request.Read(d.ctx, d.cfg.Conn, func() ([]string, error) {
			children, _, err := request.Children(d.cfg.Conn, d.cfg.Dir)
			return children, err
		})
		if err != nil {
			return err
		}
		stale := staleMarks(children, name)
		if len(stale) > 0 {
			if err := request.Pause(d.ctx, d.delay-time.Since(since)); err != nil {
				return err
			}
		}
		ops := []any{
			&zk.CheckVersionRequest{Path: own, Version: -1},
			&zk.CreateRequest{Path: path.Join(d.cfg.Dir, name), Data: d.cfg.Data, Acl: d.cfg.ACL},
		}
		for _, m := range stale {
			ops = append(ops, &zk.DeleteRequest{Path: path.Join(d.cfg.Dir, m), Version: -1})
		}
		d.mu.Lock()
		d.name = name
		d.mu.Unlock()
		responses, err := request.Read(d.ctx, d.cfg.Conn, func() ([]zk.MultiResponse, error) { return d.cfg.Conn.Multi(ops...) })
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			return nil
		case !errors.Is(err, zk.ErrNoNode):
			return err
		case len(responses) > 0 && errors.Is(responses[0].Error, zk.ErrNoNode):
			return zkerror.ErrDeleted
		}
		// Another reader has taken a mark away; it had waited too.
	}
}

// parting takes the mark away with the own znode, unless the lock was lost: who
// comes next must know that.
func (d *delayed) parting(reason error) []any {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.name == "" || errors.Is(reason, zkerror.ErrLeaseExpired) {
		return nil
	}
	return []any{&zk.DeleteRequest{Path: path.Join(d.cfg.Dir, d.name), Version: -1}}
}

// wait waits for the goroutine, after the end of the place's context.
func (d *delayed) wait() {
	d.mu.Lock()
	over := d.over
	d.mu.Unlock()
	if over != nil {
		<-over
	}
}

// markOf is the mark of a contender.
func markOf(name string) string {
	if contender.Reads(name) {
		return readerMark + contender.GUID(name)
	}
	return writerMark + contender.GUID(name)
}

// staleMarks are those of holders that are not in line any more, as far as the one
// with the mark own excludes them.
func staleMarks(children []string, own string) (stale []string) {
	reader := strings.HasPrefix(own, readerMark)
	for _, mark := range children {
		guid, writes := strings.CutPrefix(mark, writerMark)
		if !writes {
			var reads bool
			if guid, reads = strings.CutPrefix(mark, readerMark); !reads || reader {
				continue
			}
		}
		if mark != own && !hasContender(children, guid) {
			stale = append(stale, mark)
		}
	}
	return stale
}

func hasContender(children []string, guid string) bool {
	for _, name := range children {
		if contender.GUID(name) == guid {
			return true
		}
	}
	return false
}
