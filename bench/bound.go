package main

import (
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"
)

// The bounds show how much of the difference between this library and the baseline is due to the requests without
// which a leader or a holder cannot be determined safely, and not to the code of this library. Like the baseline, they
// have no contexts and no goroutines, and do not check replies.
const (
	// verifiedName lists the queue after the predecessor has left. Without that, two sessions lead or hold the lock
	// if the predecessor gave up, or if its session expired, while an earlier session still does.
	verifiedName = "verified baseline"
	// tokenName also creates the znode in a transaction, whose reply contains the fencing token.
	tokenName = "verified baseline with token"
)

// newBound returns the bound with this name.
func newBound(name, addr string, timeout time.Duration) *localContestant {
	l := newLocal(name, addr, timeout, implementation{
		newEntry: func(r recipe, conn *zk.Conn, dir string) (entry, error) {
			if r == election {
				// The constructor reports an election that does not exist.
				if found, _, err := conn.Exists(dir); err != nil || !found {
					return nil, fmt.Errorf("read %s: found: %t: %w", dir, found, err)
				}
			}
			return &boundEntry{baselineEntry{conn: conn, dir: dir}, name == tokenName}, nil
		},
	})
	l.countsQueued = true
	return l
}

// boundEntry is an entry that sends as many requests as this library does if sessions take turns: it creates its
// znode, reads the predecessor's with a watch, lists the queue after the event, and deletes its znode. It knows
// the name of the predecessor without a listing, because all names have the same prefix.
type boundEntry struct {
	baselineEntry
	token bool
}

func (e *boundEntry) acquire(queued func()) error {
	alone, err := e.create()
	if err != nil {
		return err
	}
	if alone {
		queued()
		return nil
	}
	var number int
	if _, err := fmt.Sscanf(path.Base(e.znode)[len(baselinePrefix):], "%d", &number); err != nil {
		return err
	}
	for predecessor := fmt.Sprintf("%s%010d", baselinePrefix, number-1); predecessor != ""; {
		if err := e.await(predecessor, queued); err != nil {
			return err
		}
		queued = func() {}
		names, _, err := e.conn.Children(e.dir)
		if err != nil {
			return err
		}
		predecessor = lastBefore(names, path.Base(e.znode))
	}
	return nil
}

// create creates the znode. It reports whether the reply shows that it is the only one in the queue.
func (e *boundEntry) create() (alone bool, err error) {
	acl := zk.WorldACL(zk.PermAll)
	if !e.token {
		e.znode, err = e.conn.Create(e.dir+"/"+baselinePrefix, nil, zk.FlagEphemeral|zk.FlagSequence, acl)
		return false, err
	}
	responses, err := e.conn.Multi(
		&zk.CreateRequest{Path: e.dir + "/" + baselinePrefix, Acl: acl, Flags: zk.FlagEphemeral | zk.FlagSequence},
		&zk.SetDataRequest{Path: e.dir, Version: -1})
	if err != nil {
		return false, err
	}
	e.znode = responses[0].String
	return responses[1].Stat.NumChildren == 1, nil
}
