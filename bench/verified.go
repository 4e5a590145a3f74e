package main

import (
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"
)

// The verified baselines also send the requests without which no program can safely determine a leader or a holder.
// So they show how much of the difference between this library and the baseline is due to these requests, and not
// to the code of this library. Like the baseline, they use no contexts and no goroutines, and do not check replies.
const (
	// verifiedName is the loop that lists the queue after its predecessor has left. Without this request, two
	// sessions can lead or hold the lock at the same time: a predecessor that gave up, or whose session expired, may
	// have left while an earlier session still leads.
	verifiedName = "verified baseline"
	// tokenName is the loop that also creates its znode in a transaction, whose reply contains the fencing token.
	tokenName = "verified baseline with token"
)

// newVerifiedBaseline returns the verified baseline with the given name.
func newVerifiedBaseline(name, addr string, timeout time.Duration) *localContestant {
	l := newLocal(name, addr, timeout, implementation{
		newEntry: func(r recipe, conn *zk.Conn, dir string) (entry, error) {
			if r == election {
				// Return an error for an election that does not exist, as the constructor of a candidate of this
				// library does.
				found, _, err := conn.Exists(dir)
				if err == nil && !found {
					err = zk.ErrNoNode
				}
				if err != nil {
					return nil, fmt.Errorf("read %s: %w", dir, err)
				}
			}
			return &verifiedEntry{baselineEntry{conn: conn, dir: dir}, name == tokenName}, nil
		},
	})
	l.countsQueued = true
	return l
}

// verifiedEntry is an entry that sends as many requests as this library does if sessions take turns: it creates its
// znode, reads the predecessor's znode with a watch, lists the queue after the event, and deletes its znode. Because
// all names have the same prefix, verifiedEntry knows the name of its predecessor without a listing.
type verifiedEntry struct {
	baselineEntry
	token bool
}

func (e *verifiedEntry) acquire(queued func()) error {
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

// create creates the znode. It reports whether the reply shows that the znode is the only one in the queue.
func (e *verifiedEntry) create() (alone bool, err error) {
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
