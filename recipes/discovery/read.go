package discovery

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// read is the result of reading an instance.
type read struct {
	instance Instance
	stat     *zk.Stat
	watch    *watch.Watch // nil if there is none, or if it has fired
	doubt    bool         // the watch may never fire
	err      error
	told     bool // err concerns this instance only
}

// readInstance interprets the znode of an instance.
func readInstance(found watch.Found, err error) read {
	r := read{stat: found.Stat, watch: found.Watch, doubt: found.Doubt, err: err}
	switch {
	case err == nil:
		r.instance, r.err = decode(found.Data)
		r.told = r.err != nil
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zkerror.ErrTooLarge):
		r.told = true
	}
	return r
}

func (r read) unreadable(path string) *UnreadableError {
	return &UnreadableError{path, zkerror.Refine(r.err)}
}
