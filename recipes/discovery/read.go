package discovery

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
	"github.com/go-leaderelection/leaderelection/internal/sentinel"
)

// read is what became of reading an instance.
type read struct {
	instance Instance
	stat     *zk.Stat
	watch    <-chan zk.Event
	err      error
	told     bool // err concerns this instance only
}

// readInstance reads a znode, and watches it if watched.
func readInstance(ctx context.Context, conn *zk.Conn, node string, watched bool) read {
	type answer struct {
		data  []byte
		stat  *zk.Stat
		watch <-chan zk.Event
	}
	a, err := request.Read(ctx, conn, func() (a answer, err error) {
		if watched {
			a.data, a.stat, a.watch, err = conn.GetW(node)
		} else {
			a.data, a.stat, err = conn.Get(node)
		}
		return a, err
	})
	r := read{stat: a.stat, watch: a.watch, err: err}
	switch {
	case err == nil:
		r.instance, r.err = decode(a.data)
		r.told = r.err != nil
	case errors.Is(err, zk.ErrNoAuth):
		r.told = true
	}
	return r
}

func (r read) unreadable(path string) *UnreadableError {
	return &UnreadableError{path, sentinel.Refine(r.err)}
}
