package queue

import (
	"errors"
	"path"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// A create can write the znode of the queue in the same transaction. The Stat in the reply then
// contains the number of its children at that moment, and, as the time of its change, the
// creation zxid of the contender's znode: if the contender is alone, it is its turn after one
// round trip. The write replaces the data of the queue's znode. So it is done only if the data was
// empty when the znode was last read.

// stampable contains the queues of one connection whose znodes had no data when they were read
// last.
type stampable struct {
	mu   sync.Mutex
	dirs map[string]bool // false: the write is not permitted
}

// maxStampable limits the number of queues that are remembered.
const maxStampable = 1024

var stampables = connection.NewMap(func(*zk.Conn) *stampable { return &stampable{dirs: map[string]bool{}} })

// noteStampable records whether the data of a queue's znode is empty.
func noteStampable(conn *zk.Conn, dir string, empty bool) {
	s := stampables.Of(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	permitted, known := s.dirs[dir]
	switch {
	case !empty:
		delete(s.dirs, dir)
	case known && !permitted:
	default:
		if len(s.dirs) >= maxStampable {
			clear(s.dirs)
		}
		s.dirs[dir] = true
	}
}

// forbidStamp records that the znode of a queue must not be written.
func forbidStamp(conn *zk.Conn, dir string) {
	s := stampables.Of(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirs[dir] = false
}

// isStampable reports whether the znode of a queue may be written.
func isStampable(conn *zk.Conn, dir string) bool {
	s := stampables.Of(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dirs[dir]
}

// createStamped creates the contender's znode and writes that of the queue.
func (res *result) createStamped(cfg *Config) {
	create := &zk.CreateRequest{Path: path.Join(cfg.Dir, res.reply.Prefix), Data: cfg.Data, Acl: cfg.ACL, Flags: cfg.createFlags()}
	responses, err := cfg.Conn.Multi(create, &zk.SetDataRequest{Path: cfg.Dir, Version: -1})
	switch {
	case err == nil:
		stat := responses[1].Stat
		res.path, res.reply.Token, res.reply.Alone = responses[0].String, stat.Mzxid, stat.NumChildren == 1
		// Otherwise the queue was created again: the contender lists it, and checks its ACL.
		res.reply.Alone = res.reply.Alone && cfg.guard().Checked(cfg.Dir, stat.Czxid)
	case len(responses) == 2 && responses[0].Error == nil && errors.Is(responses[1].Error, zk.ErrNoAuth):
		forbidStamp(cfg.Conn, cfg.Dir)
		res.path, res.reply.Err = cfg.Conn.Create(create.Path, create.Data, create.Flags, create.Acl)
	default:
		if isNoNode(err) {
			noteStampable(cfg.Conn, cfg.Dir, false) // another client may create it with data
		}
		res.reply.Err = err
	}
}
