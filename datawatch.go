package leaderelection

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/session"
)

// dataWatch follows the data of a znode. It belongs to one goroutine.
type dataWatch struct {
	conn  *zk.Conn
	path  string
	sub   *session.Subscription
	watch <-chan zk.Event // nil where none is set
	epoch uint64          // of the connection, when it was read
}

// errRenamed is what wait returns for an element of its channel.
var errRenamed = errors.New("the candidate has another ID")

// read returns the data, and sees to it that there is a watch from before that.
func (w *dataWatch) read(ctx context.Context) ([]byte, error) {
	type content struct {
		data  []byte
		watch <-chan zk.Event
	}
	w.epoch = w.sub.State().Epoch
	path, armed := w.path, w.watch != nil
	c, err := request.Read(ctx, w.conn, func() (c content, err error) {
		if armed {
			c.data, _, err = w.conn.Get(path)
		} else {
			c.data, _, c.watch, err = w.conn.GetW(path)
		}
		return c, err
	})
	if err == nil && !armed {
		w.watch = c.watch
	}
	return c.data, err
}

// wait returns nil when there is reason to read again, and errRenamed for an element of
// renamed.
func (w *dataWatch) wait(ctx context.Context, renamed <-chan struct{}) error {
	for {
		select {
		case event := <-w.watch:
			w.watch = nil
			if errors.Is(event.Err, zk.ErrClosing) {
				return request.ErrClosed
			}
			return nil
		case <-renamed:
			return errRenamed
		case <-w.sub.Changed():
			// The client library can lose a change while it sets the watch anew.
			switch s := w.sub.State(); {
			case s.Closed:
				return request.ErrClosed
			case s.Up && s.Epoch != w.epoch:
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// The client library cannot take a watch back. A watch on an election node, which nobody
// writes to for months, is therefore left to the next candidate on the connection: or else
// those of all candidates that came and went would add up. There are as many as candidates
// that have listened at one time.
var (
	sparesMu sync.Mutex
	spares   = map[spare][]<-chan zk.Event{}
)

type spare struct {
	conn *zk.Conn
	path string
}

// takeSpare returns a watch that somebody has left, nil for none. It may have fired.
func takeSpare(conn *zk.Conn, path string) <-chan zk.Event {
	sparesMu.Lock()
	defer sparesMu.Unlock()
	s := spare{conn, path}
	left := spares[s]
	if len(left) == 0 {
		return nil
	}
	last := len(left) - 1
	setSpares(s, left[:last])
	return left[last]
}

// leaveSpare leaves a watch, nil for none. Those that have fired, as all of a closed
// connection have, are forgotten.
func leaveSpare(conn *zk.Conn, path string, watch <-chan zk.Event) {
	sparesMu.Lock()
	defer sparesMu.Unlock()
	if watch != nil {
		s := spare{conn, path}
		spares[s] = append(spares[s], watch)
	}
	for s, left := range spares {
		setSpares(s, slices.DeleteFunc(left, func(watch <-chan zk.Event) bool { return len(watch) > 0 }))
	}
}

// setSpares is for holders of sparesMu. None is no entry, which would keep the connection.
func setSpares(s spare, left []<-chan zk.Event) {
	if len(left) == 0 {
		delete(spares, s)
		return
	}
	spares[s] = left
}
