package cache

import (
	"runtime"
	"sync"
	"weak"

	"github.com/go-zookeeper/zk"
)

// The client library cannot take watches back. Those of a closed cache stay until
// they fire, and a program that opens and closes caches of the same znodes would
// have ever more of them. So they are left to the next cache on the connection.

var (
	estatesMu sync.Mutex
	estates   = map[weak.Pointer[zk.Conn]]*estate{}
)

// estate is what closed caches have left on one connection.
type estate struct {
	mu    sync.Mutex
	left  map[spot]leftover
	sweep int // at this size look for what has fired
}

type spot struct {
	path string
	kind watchKind
}

type leftover struct {
	ch    <-chan zk.Event
	spare int
}

// estateOf returns the connection's estate, which lives as long as it does.
func estateOf(conn *zk.Conn) *estate {
	estatesMu.Lock()
	defer estatesMu.Unlock()
	key := weak.Make(conn)
	e := estates[key]
	if e == nil {
		e = &estate{left: map[spot]leftover{}, sweep: 64}
		estates[key] = e
		runtime.AddCleanup(conn, func(key weak.Pointer[zk.Conn]) {
			estatesMu.Lock()
			defer estatesMu.Unlock()
			delete(estates, key)
		}, key)
	}
	return e
}

// take returns a watch of that kind at path that has not fired, nil if there is
// none.
func (e *estate) take(path string, kind watchKind) *watch {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := spot{path, kind}
	l, ok := e.left[at]
	if !ok {
		return nil
	}
	delete(e.left, at)
	w := &watch{kind: kind, ch: l.ch, spare: l.spare}
	if _, fired := w.poll(); fired {
		return nil
	}
	return w
}

// leave keeps a watch for whoever may need it.
func (e *estate) leave(path string, kind watchKind, l leftover) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := spot{path, kind}
	if other, ok := e.left[at]; ok {
		if _, fired := (&watch{ch: other.ch}).poll(); !fired {
			l.ch, l.spare = other.ch, l.spare+other.spare+1
		}
	}
	e.left[at] = l
	if len(e.left) < e.sweep {
		return
	}
	for at, l := range e.left {
		if _, fired := (&watch{ch: l.ch}).poll(); fired {
			delete(e.left, at)
		}
	}
	e.sweep = max(64, 2*len(e.left))
}
