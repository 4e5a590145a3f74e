package main

import (
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"
)

const baselineName = "baseline"

// newBaseline returns the contestant with which rows compare all others: the shortest loop in which sessions take
// turns, without any guarantee. The package comment describes the loop.
func newBaseline(addr string, timeout time.Duration) *localContestant {
	l := newLocal(baselineName, addr, timeout, implementation{
		newEntry: func(_ recipe, conn *zk.Conn, dir string) (entry, error) {
			return &baselineEntry{conn: conn, dir: dir}, nil
		},
		newOperation: newBaselineOperation,
		fillCache:    fillBaselineCache,
		watchCache:   watchBaselineCache,
	})
	l.countsQueued = true
	return l
}

// baselineEntry creates an ephemeral sequential znode, lists the queue, reads the znode of its
// predecessor with a watch, and waits for the event. A releasing entry deletes its znode. The entry
// relies on conditions that the other contestants have to verify: znodes are deleted only by their
// owner and only at the head of the queue, every reply arrives, and sessions do not expire.
type baselineEntry struct {
	conn  *zk.Conn
	dir   string
	znode string
}

// baselinePrefix is a prefix for the names of znodes that makes them as long as the names of the other contestants,
// so that lists of the queue have the same size.
const baselinePrefix = "_c_00000000-0000-0000-0000-000000000000-latch-"

func (e *baselineEntry) acquire(queued func()) error {
	var err error
	e.znode, err = e.conn.Create(e.dir+"/"+baselinePrefix, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return err
	}
	names, _, err := e.conn.Children(e.dir)
	if err != nil {
		return err
	}
	predecessor := lastBefore(names, path.Base(e.znode))
	if predecessor == "" {
		queued()
		return nil
	}
	return e.await(predecessor, queued)
}

// lastBefore returns the greatest of names that is less than name, or "" if there is none. Names are in the order of
// the queue, because all have the same prefix.
func lastBefore(names []string, name string) string {
	predecessor := ""
	for _, other := range names {
		if other < name && other > predecessor {
			predecessor = other
		}
	}
	return predecessor
}

// await waits until the predecessor has left the queue. It calls queued when it watches the predecessor.
func (e *baselineEntry) await(predecessor string, queued func()) error {
	_, _, watch, err := e.conn.GetW(e.dir + "/" + predecessor)
	queued()
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	switch event := <-watch; event.Type {
	case zk.EventNodeDeleted:
		return nil
	case zk.EventNotWatching:
		return zk.ErrClosing
	default:
		return fmt.Errorf("unexpected event instead of the deletion of %s: %v", predecessor, event)
	}
}

func (e *baselineEntry) release() error { return e.conn.Delete(e.znode, -1) }
