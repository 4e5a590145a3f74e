package main

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const floorName = "floor"

// floor is what no client can do without, and nothing else. Its line is right
// only as long as candidates stand one after another, because none of them
// looks who is ahead.
type floor struct {
	sessions
	standers
	running *sync.WaitGroup
	caching *caching

	mu    sync.Mutex
	last  string             // the znode at the end of the line
	owned map[int]ownedZnode // by candidate
}

type ownedZnode struct {
	path string
	conn *zk.Conn
}

func newFloor(addr string) *floor {
	return &floor{sessions: newSessions(addr), standers: newStanders(), running: new(sync.WaitGroup), owned: map[int]ownedZnode{}}
}

func (f *floor) name() string { return floorName }
func (f *floor) most() int    { return math.MaxInt }

func enter(conn *zk.Conn, dir string) (string, error) {
	// As long a name as those of the contestants, whose listings it shares.
	const name = "_c_00000000-0000-0000-0000-000000000000-latch-"
	return conn.Create(dir+"/"+name, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
}

func (f *floor) join(session int, dir string, _ bool) (time.Duration, error) {
	conn := f.conn(session)
	at := now()
	path, err := enter(conn, dir)
	if err != nil {
		return 0, err
	}
	if _, _, err := conn.Children(dir); err != nil {
		return 0, err
	}
	took := time.Duration(now() - at)
	return took, conn.Delete(path, -1)
}

func (f *floor) stand(candidate, session int, dir string) {
	if err := f.enterLine(candidate, session, dir); err != nil {
		f.tellFailed(err)
	}
}

func (f *floor) enterLine(candidate, session int, dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	conn := f.conn(session)
	path, err := enter(conn, dir)
	if err != nil {
		return err
	}
	ahead := f.last
	f.last, f.owned[candidate] = path, ownedZnode{path, conn}
	if ahead == "" {
		f.tellLeads(candidate)
		return nil
	}
	_, _, watch, err := conn.GetW(ahead)
	if err != nil {
		return err
	}
	f.running.Go(func() {
		if event := <-watch; event.Type == zk.EventNodeDeleted {
			f.tellLeads(candidate)
		}
	})
	return nil
}

func (f *floor) leave(candidate int) (int64, error) {
	f.mu.Lock()
	own, ok := f.owned[candidate]
	delete(f.owned, candidate)
	f.mu.Unlock()
	if !ok {
		return 0, fmt.Errorf("no candidate %d", candidate)
	}
	at := now()
	return at, own.conn.Delete(own.path, -1)
}

// enlist has n candidates enter and list the line, all at once, and returns
// the time until the last has done so.
func (f *floor) enlist(n, sessions int, dir string) (time.Duration, error) {
	var wg sync.WaitGroup
	failure := make(chan error, n)
	at := now()
	for i := range n {
		conn := f.conn(i % sessions)
		wg.Go(func() {
			if _, err := enter(conn, dir); err != nil {
				failure <- err
				return
			}
			if _, _, err := conn.Children(dir); err != nil {
				failure <- err
			}
		})
	}
	wg.Wait()
	took := time.Duration(now() - at)
	select {
	case err := <-failure:
		return 0, err
	default:
		return took, nil
	}
}

func (f *floor) reset() error {
	f.disconnectAll()
	if waitAll(f.running, brokenClose) != nil {
		// Whoever is given up must not be waited for again, nor be heard.
		f.running, f.standers = new(sync.WaitGroup), newStanders()
	}
	f.forget()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = ""
	clear(f.owned)
	return nil
}

func (f *floor) close() error { return f.reset() }
