package lock

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
)

// The name of a holder's marker consists of one of these prefixes and the GUID in the name of the holder's
// znode. In no layout does the name of a contender begin with one of these prefixes, and Curator sorts such
// names last.
const (
	writerMarker = contender.HeldToWrite
	readerMarker = contender.HeldToRead
)

// delayFilter forwards the states of a contender to next. If an earlier holder has lost the lock, it withholds the
// state in which the lock is granted until the lock-delay is over and the contender has created its marker. A
// separate goroutine waits and creates the marker. This goroutine ends at the latest when the contender must leave.
type delayFilter struct {
	ctx   context.Context // done when the contender must leave
	cfg   *queue.Config
	delay time.Duration
	next  func(queue.State)
	stop  context.CancelCauseFunc

	mu     sync.Mutex
	latest queue.State
	ready  bool          // whether the lock-delay is over and the marker exists
	name   string        // name of the marker; empty until the marker may exist
	over   chan struct{} // closed when the goroutine has ended; nil before the goroutine starts
}

// receiveState is called with each state of the contender. It starts the goroutine when the contender reaches
// the head of the queue.
func (d *delayFilter) receiveState(s queue.State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latest = s
	if s.First && d.over == nil {
		d.over = make(chan struct{})
		go d.waitAndMark(s.Path, time.Now())
	}
	d.forward()
}

// forward passes the latest state to next. The caller holds mu.
func (d *delayFilter) forward() {
	s := d.latest
	s.Proven = s.Proven && d.ready
	d.next(s)
}

// waitAndMark waits for the lock-delay and creates the marker. since is the time at which the contender
// reached the head of the queue.
func (d *delayFilter) waitAndMark(own string, since time.Time) {
	defer close(d.over)
	err := d.createMarker(own, since)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.ready = true
		d.forward()
	case !errors.Is(err, connection.ErrDeleted): // a deletion needs no stop: the contender's state reports it
		d.stop(err)
	}
}

// createMarker waits for the lock-delay if stale markers exist. It then deletes the stale markers and creates
// the contender's marker.
func (d *delayFilter) createMarker(own string, since time.Time) error {
	name := markerOf(path.Base(own))
	for {
		children, err := connection.List(d.ctx, d.cfg.Conn, d.cfg.Dir)
		if err != nil {
			return err
		}
		stale := staleMarkers(children, name)
		if len(stale) > 0 {
			if err := limit.Pause(d.ctx, d.delay-time.Since(since)); err != nil {
				return err
			}
		}
		if err := d.replaceMarkers(own, name, stale); !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		// The transaction failed because another reader has deleted a stale marker after its own wait. List
		// the markers again.
	}
}

// markerBytes limits the total length of the paths of the markers that one transaction deletes. Servers
// accept requests of about a megabyte.
const markerBytes = 256 << 10

// replaceMarkers deletes stale markers, and creates the contender's marker in the transaction that deletes the
// last of them. The name of a marker is used only once: if the marker exists, an earlier request was applied. A
// marker below which another program has created a znode cannot be deleted, and remains: later contenders wait
// for the lock-delay again.
func (d *delayFilter) replaceMarkers(own, name string, stale []string) error {
	for {
		var deletes []any
		for size := 0; len(deletes) < len(stale) && size < markerBytes; {
			marker := path.Join(d.cfg.Dir, stale[len(deletes)])
			size += len(marker)
			deletes = append(deletes, &zk.DeleteRequest{Path: marker, Version: -1})
		}
		rest := stale[len(deletes):]
		ops := []any{&zk.CheckVersionRequest{Path: own, Version: -1}}
		if len(rest) == 0 {
			ops = append(ops, &zk.CreateRequest{Path: path.Join(d.cfg.Dir, name), Data: d.cfg.Data, Acl: d.cfg.ACL})
			d.mu.Lock()
			d.name = name
			d.mu.Unlock()
		}
		ops = append(ops, deletes...)
		responses, err := connection.Read(d.ctx, d.cfg.Conn, func() ([]zk.MultiResponse, error) { return d.cfg.Conn.Multi(ops...) })
		switch {
		case err == nil && len(rest) == 0, errors.Is(err, zk.ErrNodeExists):
			return nil
		case errors.Is(err, zk.ErrNoNode) && len(responses) > 0 && errors.Is(responses[0].Error, zk.ErrNoNode):
			return connection.ErrDeleted
		case errors.Is(err, zk.ErrNotEmpty):
			failed := slices.IndexFunc(responses, func(r zk.MultiResponse) bool { return errors.Is(r.Error, zk.ErrNotEmpty) })
			i := failed - (len(ops) - len(deletes))
			if i < 0 {
				return err
			}
			d.cfg.Log.Warn("a marker of a lost holder has children, so that each contender waits for the lock-delay: delete its children and the marker",
				"path", path.Join(d.cfg.Dir, stale[i]))
			stale = slices.Concat(stale[:i], stale[i+1:])
			continue
		case err != nil:
			return err
		}
		stale = rest
	}
}

// markerDeletion returns the operation that deletes the marker together with the contender's znode. It returns
// no operation if the lock was lost: the marker must then remain, so that the next contender waits for the
// lock-delay.
func (d *delayFilter) markerDeletion(reason error) []any {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.name == "" || errors.Is(reason, connection.ErrLeaseExpired) {
		return nil
	}
	return []any{&zk.DeleteRequest{Path: path.Join(d.cfg.Dir, d.name), Version: -1}}
}

// wait waits until the goroutine of the filter has ended. d.ctx must be done.
func (d *delayFilter) wait() {
	d.mu.Lock()
	over := d.over
	d.mu.Unlock()
	if over != nil {
		<-over
	}
}

// markerOf returns the name of a contender's marker.
func markerOf(name string) string {
	if contender.Reads(name) {
		return readerMarker + contender.GUID(name)
	}
	return writerMarker + contender.GUID(name)
}

// staleMarkers returns the markers that make the contender with the marker own wait, because the znodes of
// their holders do not exist any more. Readers do not wait for the markers of readers.
func staleMarkers(children []string, own string) (stale []string) {
	reader := strings.HasPrefix(own, readerMarker)
	for _, marker := range children {
		guid, writes := strings.CutPrefix(marker, writerMarker)
		if !writes {
			var reads bool
			if guid, reads = strings.CutPrefix(marker, readerMarker); !reads || reader {
				continue
			}
		}
		if marker != own && !slices.ContainsFunc(children, func(name string) bool { return contender.GUID(name) == guid }) {
			stale = append(stale, marker)
		}
	}
	return stale
}
