package queue

import (
	"bytes"
	"path"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// The names of hand-written elections (contender.Prefix) contain no GUID. After a create whose reply was lost, a
// contender can recognize its znode only by the owner, the current session, and by the data, but other contenders
// on the same connection have znodes with the same owner and data. Therefore all contenders of one connection in
// one queue register their znodes, and only one create or search runs at a time: a search assigns the znodes that
// it finds to its contender unless another contender has registered them.
//
// If the queue was created again, the servers assign the same names again. So a znode with a registered name
// belongs to the contender only if the current session owns the znode.

// plainQueue is what the contenders of one connection in one queue share.
type plainQueue struct {
	users int           // the number of contenders; guarded by the table
	turn  chan struct{} // capacity 1; contains an element during a create, a delete or a search
	owner map[string]*plainContender
}

// plainContender is one of the contenders that share a plainQueue.
type plainContender struct {
	cfg   *Config
	queue *plainQueue
}

// plainQueues contains the queues that have contenders, by Config.Dir.
var plainQueues = connection.NewTables[string, *plainQueue]()

// joinPlain registers a contender. The caller must call leave when the contender has removed its znodes, or cannot
// remove them any more.
func joinPlain(cfg *Config) *plainContender {
	queues := plainQueues.Lock(cfg.Conn)
	defer queues.Unlock()
	p := queues.Entries[cfg.Dir]
	if p == nil {
		p = &plainQueue{turn: make(chan struct{}, 1), owner: map[string]*plainContender{}}
		queues.Entries[cfg.Dir] = p
	}
	p.users++
	return &plainContender{cfg, p}
}

func (c *plainContender) leave() {
	p := c.queue
	p.turn <- struct{}{}
	for name, owner := range p.owner {
		if owner == c {
			delete(p.owner, name)
		}
	}
	<-p.turn
	queues := plainQueues.Lock(c.cfg.Conn)
	defer queues.Unlock()
	if p.users--; p.users == 0 {
		delete(queues.Entries, c.cfg.Dir)
	}
}

// create creates a znode, registers it, and returns its path.
func (c *plainContender) create(prefix string) (string, error) {
	p := c.queue
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	created, err := c.cfg.Conn.Create(c.cfg.Dir+"/"+prefix, c.cfg.Data, zk.FlagEphemeral|zk.FlagSequence, c.cfg.ACL)
	if err == nil {
		p.owner[nameOf(created)] = c
	}
	return created, err
}

// registerOwn registers and returns the names of the children of the queue that are znodes of the contender, in the
// order of the queue. The caller holds the turn.
func (c *plainContender) registerOwn(children []string) (names []string, err error) {
	prefix, _ := c.cfg.Naming.Plain()
	contenders, _, _ := contender.Order(children, c.cfg.Tombstone)
	own, err := connection.Each(contenders, connection.InFlight, func(_ int, name string) (bool, error) {
		switch owner := c.queue.owner[name]; {
		case owner == c:
			return c.cfg.isOwnedByCurrentSession(name)
		case owner == nil && strings.HasPrefix(name, prefix) && len(name) >= len(prefix)+len("0000000000"):
			return c.cfg.isCreatedByCurrentSession(name)
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	for i, name := range contenders {
		if own[i] {
			names = append(names, name)
			c.queue.owner[strings.Clone(name)] = c
		}
	}
	return names, nil
}

// delete deletes a znode of the contender. If the znode does not belong to the contender, delete returns
// zk.ErrNoNode.
func (c *plainContender) delete(znode string) error {
	c.queue.turn <- struct{}{}
	// Keep the turn until the delete has returned, so that no other contender of the session creates a znode with
	// this name in the meantime.
	defer func() { <-c.queue.turn }()
	registered := c.queue.owner[nameOf(znode)] == c
	owned, err := c.cfg.isOwnedByCurrentSession(nameOf(znode))
	switch {
	case err != nil:
		return err
	case !registered || !owned:
		return zk.ErrNoNode
	}
	return c.cfg.Conn.Delete(znode, -1)
}

// isOwnedByCurrentSession reports whether the current session owns a znode.
func (cfg *Config) isOwnedByCurrentSession(name string) (bool, error) {
	exists, stat, err := cfg.Conn.Exists(path.Join(cfg.Dir, name))
	return err == nil && exists && stat.EphemeralOwner == cfg.Conn.SessionID(), err
}

// isCreatedByCurrentSession reports whether the current session has created a znode with the contender's data.
func (cfg *Config) isCreatedByCurrentSession(name string) (bool, error) {
	if owned, err := cfg.isOwnedByCurrentSession(name); !owned {
		return false, err
	}
	znode := path.Join(cfg.Dir, name)
	data, _, err := connection.Get(cfg.Conn, znode)
	if isNoNode(err) {
		return false, nil
	}
	return bytes.Equal(data, cfg.Data), err
}
