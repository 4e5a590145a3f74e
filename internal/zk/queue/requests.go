package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// requests executes requests of one contender. Its methods may be called from any goroutine.
type requests struct {
	cfg   *Config
	plain *plainContender // nil unless the names contain no GUID

	// context sets ctx, which end ends, and turn: most requests need neither. turn, of capacity 1, holds an element
	// while a request pauses after a failure, so that several failing requests do not cause more retries than one.
	once    sync.Once
	ctx     context.Context
	cancel  context.CancelFunc
	turn    chan struct{}
	backoff connection.Backoff
}

// context returns a context that is done when the contender is over, and results do not matter any more.
func (r *requests) context() context.Context {
	r.once.Do(func() {
		r.ctx, r.cancel = context.WithCancel(context.Background())
		r.turn = make(chan struct{}, 1)
	})
	return r.ctx
}

// end makes requests in progress return, because the contender is over.
func (r *requests) end() {
	r.context()
	r.cancel()
}

// pause pauses after a failure, or until the contender is over.
func (r *requests) pause() error {
	ctx := r.context()
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
		return limit.Pause(ctx, r.backoff.Next())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hasFailed reports whether a request has failed. No request may be in progress.
func (r *requests) hasFailed() bool { return r.backoff != connection.Backoff{} }

// result is a request, the reply, and what the driver needs in addition. Results are pooled, because they are
// large.
type result struct {
	request contender.Request
	reply   contender.Reply
	path    string          // the path of the znode Name of the request, or of the created znode
	sent    time.Time       // when the request was sent
	watch   *watch.Watch    // the watch that the request has set, or nil
	ctx     context.Context // ends the retries of a Replace; nil for other requests
}

var results = sync.Pool{New: func() any { return new(result) }}

// send performs the request of res and sends res to replies.
func (r *requests) send(res *result, replies chan<- *result) {
	r.perform(res)
	replies <- res
}

// perform executes the request of res and stores the reply in it. With Config.Rejoins, it repeats the removal of the
// contender's znode while the servers reject it for a reason that can pass: the contender would join again behind
// its own znode, which exists as long as the session.
func (r *requests) perform(res *result) {
	for {
		r.try(res)
		if r.cfg.Rejoins && res.request.Last && connection.IsPassing(res.reply.Err) && r.pause() == nil {
			continue
		}
		if res.request.Kind == contender.Delete && r.plain == nil && connection.IsRejection(res.reply.Err) {
			go deleteLater(r.cfg, res.path)
		}
		return
	}
}

// deleteLater deletes a znode that blocks the queue, because the servers have rejected its deletion, when they
// accept it. It ends with the session of the znode and with the connection.
func deleteLater(cfg *Config, path string) {
	owner := cfg.Conn.SessionID()
	connection.Insist(func() error {
		if cfg.Conn.SessionID() != owner {
			return nil
		}
		err := connection.Retry(context.Background(), cfg.Conn, func() error { return cfg.Conn.Delete(path, -1) })
		if err == nil {
			cfg.Log.Info("deleted a znode whose deletion was rejected before", "path", path)
		}
		return err
	})
}

// try executes the request of res once and stores the reply in it.
func (r *requests) try(res *result) {
	cfg, q := r.cfg, &res.request
	switch q.Kind {
	case contender.Create:
		r.create(res)
	case contender.MakeQueue:
		res.reply.Err = cfg.MakeDir(r.context())
	case contender.Search:
		res.reply.Names, res.reply.Err = r.search(q.Prefixes)
	case contender.List:
		r.list(res)
	case contender.ReadOwn:
		r.readWatched(res, watch.Children)
	case contender.ReadPredecessor, contender.ReadBefore:
		r.readWatched(res, watch.Data)
	case contender.Inspect:
		stat, err := r.stat(res.path)
		res.setStat(stat, err)
	case contender.FindContender:
		res.reply.Name, res.reply.Names, res.reply.Err = FirstContender(r.context(), cfg.Conn, cfg.Dir, q.Names)
	case contender.FindReason:
		r.findReason(res)
	case contender.Delete:
		r.delete(res)
	case contender.Notify:
		res.reply.Err = r.notify(res.path)
	case contender.Replace:
		r.replaceZnode(res)
	}
}

// notify writes the contender's znode again. It keeps the data that another client has written, such as a
// request to release the lock: only version 0 has the data of the contender.
func (r *requests) notify(path string) error {
	data, version := r.cfg.Data, int32(0)
	for {
		_, err := repeat(r, func() (*zk.Stat, error) { return r.cfg.Conn.Set(path, data, version) })
		if !errors.Is(err, zk.ErrBadVersion) {
			return err
		}
		found, err := repeat(r, func() (found watch.Found, err error) {
			found.Data, found.Stat, err = connection.Get(r.cfg.Conn, path)
			return found, err
		})
		switch data, version = found.Data, -1; {
		case connection.IsUnreadable(err):
			data = r.cfg.Data // write the data, so that the next client can read it
		case err != nil:
			return err
		default:
			version = found.Stat.Version
		}
	}
}

// list reads the names of the queue's children, and sets a watch if the request asks for one.
func (r *requests) list(res *result) {
	cfg, q := r.cfg, &res.request
	found, err := repeat(r, func() (watch.Found, error) {
		if q.Watched {
			return watch.Try(cfg.Conn, query(q, cfg.Dir, watch.Children))
		}
		return watch.Listing(cfg.Conn, cfg.Dir)
	})
	if res.reply.Err = err; err != nil {
		return
	}
	// The queue may have been created again after it was checked.
	if _, res.reply.Err = repeat(r, func() (any, error) { return nil, cfg.CheckZnode(cfg.Dir, found.Stat.Czxid) }); res.reply.Err != nil {
		return
	}
	res.reply.Names, res.reply.QueueCzxid, res.watch, res.reply.Doubt = found.Children, found.Stat.Czxid, found.Watch, found.Doubt
	if cfg.Stamp {
		noteStampable(cfg.Conn, cfg.Dir, found.Stat.DataLength == 0)
	}
}

// repeat calls f until it returns no transient failure, an error of connection.Final, or the contender is over.
// It blocks until the connection answers.
func repeat[T any](r *requests, f func() (T, error)) (T, error) {
	for {
		value, err := f()
		if err == nil {
			return value, nil
		}
		if final := connection.Final(r.context(), r.cfg.Conn, err); final != nil {
			return value, final
		}
		if err := r.pause(); err != nil {
			return value, err
		}
	}
}

// query returns the query of a read that sets a watch.
func query(q *contender.Request, path string, what watch.What) watch.Query {
	return watch.Query{Path: path, What: what, Epoch: q.Epoch, Reset: q.Reset}
}

// readWatched reads a child of the queue and sets a watch on it. Another contender must not end this one by
// data that this connection cannot read.
func (r *requests) readWatched(res *result, what watch.What) {
	found, err := repeat(r, func() (watch.Found, error) {
		return watch.Try(r.cfg.Conn, query(&res.request, res.path, what))
	})
	if what == watch.Data && connection.IsUnreadable(err) {
		err = nil
	}
	if res.setStat(found.Stat, err); err != nil {
		return
	}
	res.watch, res.reply.Doubt = found.Watch, found.Doubt
}

func (res *result) setStat(stat *zk.Stat, err error) {
	if res.reply.Err = err; err == nil {
		res.reply.Owner, res.reply.Token, res.reply.Version, res.reply.Ephemeral = stat.EphemeralOwner, stat.Czxid, stat.Version, connection.IsEphemeral(stat)
	}
}

// stat returns the Stat of a znode, or zk.ErrNoNode.
func (r *requests) stat(path string) (*zk.Stat, error) {
	return repeat(r, func() (*zk.Stat, error) {
		exists, stat, err := r.cfg.Conn.Exists(path)
		if err == nil && !exists {
			err = zk.ErrNoNode
		}
		return stat, err
	})
}

// findReason reads the tombstone, and then the znode of the queue, without its children: when an election ends,
// all candidates do this at the same time. The tombstone is created before any contender is deleted, and is
// deleted with the znode of the queue. So if it does not exist, and later the same znode of the queue does, the
// queue has not ended.
func (r *requests) findReason(res *result) {
	cfg := r.cfg
	// Close deletes the znode as well, and a request could make it hang.
	connection.AwaitClosing(r.context(), cfg.Conn, closingTime)
	if cfg.Tombstone != "" {
		_, err := r.stat(path.Join(cfg.Dir, cfg.Tombstone))
		if !isNoNode(err) {
			res.reply.Ended, res.reply.Err = err == nil, err
			return
		}
	}
	stat, err := r.stat(cfg.Dir)
	switch {
	case isNoNode(err):
	case err != nil:
		res.reply.Err = err
	default:
		res.reply.QueueCzxid = stat.Czxid
	}
}

// closingTime is how long a connection that its owner closes may still appear to be open.
const closingTime = 5 * time.Millisecond

// create creates the contender's znode.
func (r *requests) create(res *result) {
	cfg := r.cfg
	prefix := cfg.Naming.NamePrefix
	if cfg.Prefix != nil {
		prefix = cfg.Prefix
	}
	guid := contender.GUIDOf(randomGUID())
	if cfg.Rotation != nil {
		guid = cfg.Rotation.newGUID()
	}
	res.reply.Prefix = prefix(guid)
	if err := cfg.CheckZnode(cfg.Dir, 0); err != nil {
		res.reply.Err = r.lost(err)
		return
	}
	res.sent = time.Now()
	before := cfg.Conn.SessionID()
	if r.plain != nil {
		res.path, res.reply.Err = r.plain.create(res.reply.Prefix)
	} else {
		res.createZnode(cfg)
	}
	if res.reply.Err != nil {
		res.reply.Err = r.lost(res.reply.Err)
		return
	}
	// The name is a part of the path, so that both are kept once.
	res.reply.Name = nameOf(res.path)
	if cfg.Conn.SessionID() == before {
		// If the session has changed, only the znode shows in which of the two sessions it was created.
		res.reply.Session = before
	}
}

func randomGUID() (guid [16]byte) {
	_, _ = rand.Read(guid[:]) // never fails
	return guid
}

// lost returns the error of connection.Final, or ErrLost after a pause if the request may be sent again.
func (r *requests) lost(err error) error {
	if err == nil {
		return nil
	}
	if final := connection.Final(r.context(), r.cfg.Conn, err); final != nil {
		return final
	}
	// The state of the connection may not yet show the failure.
	_ = r.pause()
	return contender.ErrLost
}

// delete deletes a znode of the contender, the last one together with the operations of Config.Parting.
func (r *requests) delete(res *result) {
	cfg, q := r.cfg, &res.request
	if q.Last && cfg.Parting != nil {
		if ops := cfg.Parting(q.Err); len(ops) > 0 {
			_, err := cfg.Conn.Multi(append(ops, &zk.DeleteRequest{Path: res.path, Version: -1})...)
			if err == nil || connection.Transient(err) {
				res.reply.Err = r.lost(err)
				return
			}
		}
	}
	if r.plain != nil {
		res.reply.Err = r.lost(r.plain.delete(res.path))
		return
	}
	res.reply.Err = r.lost(cfg.Conn.Delete(res.path, -1))
}

// search returns the contender's znodes, whose names begin with one of the prefixes, the first in the queue first,
// as of a time after the call: without Sync a server that lags behind would not show the newest.
func (r *requests) search(prefixes []string) (names []string, err error) {
	children, err := repeat(r, func() ([]string, error) {
		if r.plain != nil {
			r.plain.queue.turn <- struct{}{}
			defer func() { <-r.plain.queue.turn }()
		}
		if _, err := r.cfg.Conn.Sync(r.cfg.Dir); err != nil {
			return nil, err
		}
		found, err := watch.Listing(r.cfg.Conn, r.cfg.Dir)
		if err == nil && r.plain != nil {
			return r.plain.own(found.Children)
		}
		return found.Children, err
	})
	contenders, others, _ := contender.Order(children, r.cfg.Tombstone)
	for _, name := range append(contenders, others...) { // the names of kazoo's leases contain no number
		if contender.HasAnyPrefix(name, prefixes) {
			names = append(names, name)
		}
	}
	return names, err
}

// replaceZnode replaces a znode by one with another name, the same GUID and the same number, in one
// transaction. The new name is used only once, so the transaction can be repeated after a lost reply: "node
// exists" means that it was applied before, and a missing old znode that another client, or the session, has
// deleted it.
func (r *requests) replaceZnode(res *result) {
	// A transaction may outlast this call, and must not use res, which is reused.
	cfg := r.cfg
	from, to := res.path, path.Join(cfg.Dir, res.request.To)
	res.path = to
	res.sent, res.reply.Err = connection.Read(res.ctx, cfg.Conn, func() (time.Time, error) {
		sent := time.Now()
		_, err := cfg.Conn.Multi(
			&zk.CreateRequest{Path: to, Data: cfg.Data, Acl: cfg.ACL, Flags: zk.FlagEphemeral},
			&zk.DeleteRequest{Path: from, Version: -1},
		)
		if errors.Is(err, zk.ErrNodeExists) {
			err = nil
		}
		return sent, err
	})
	if res.reply.Err != nil {
		return
	}
	// Without the watch the checks of the lease notice the deletion.
	found, err := watch.Read(res.ctx, cfg.Conn, watch.Query{Path: to, What: watch.Children})
	if isNoNode(err) {
		res.reply.Err = err
	}
	res.watch = found.Watch
}

// A create can write the znode of the queue in the same transaction. The Stat in the reply then contains the
// number of its children and, as the time of its change, the creation zxid of the contender's znode: if the
// contender is alone, it is its turn after one round trip. The write replaces the data of the queue's znode. So
// it is done only if the data was empty when the znode was last read, and, with Config.Unused, if it has not
// been written since.

// stampable contains the queues whose znodes had no data when they were read last, with false if the write is not
// permitted.
var stampable = connection.NewTables[string, bool]()

// noteStampable records whether the data of a queue's znode is empty.
func noteStampable(conn *zk.Conn, dir string, empty bool) {
	dirs := stampable.Lock(conn)
	defer dirs.Unlock()
	permitted, known := dirs.Entries[dir]
	switch {
	case !empty:
		delete(dirs.Entries, dir)
	case known && !permitted:
	default:
		dirs.Remember(dir, true)
	}
}

// forbidStamp records that the znode of a queue must not be written.
func forbidStamp(conn *zk.Conn, dir string) {
	dirs := stampable.Lock(conn)
	defer dirs.Unlock()
	dirs.Entries[dir] = false
}

// stampVersion returns the version in which the create may write the znode of the queue, -1 for any. ok is
// false if it must not write it.
func (cfg *Config) stampVersion() (version int32, ok bool) {
	if !cfg.Stamp && !cfg.Unused {
		return 0, false
	}
	dirs := stampable.Lock(cfg.Conn)
	defer dirs.Unlock()
	permitted, known := dirs.Entries[cfg.Dir]
	if cfg.Unused {
		return cfg.UnusedVersion, permitted || !known
	}
	return -1, permitted
}

// createZnode creates the contender's znode, and writes that of the queue in the same transaction if it may.
func (res *result) createZnode(cfg *Config) {
	create := &zk.CreateRequest{Path: join(cfg.Dir, res.reply.Prefix), Data: cfg.Data, Acl: cfg.ACL, Flags: zk.FlagEphemeral}
	if cfg.Naming.Sequential() {
		create.Flags |= zk.FlagSequence
	}
	if version, ok := cfg.stampVersion(); ok && res.createStamped(cfg, create, version) {
		return
	}
	res.path, res.reply.Err = cfg.Conn.Create(create.Path, create.Data, create.Flags, create.Acl)
}

// createStamped creates the contender's znode and writes that of the queue. It returns false if nothing was
// done, because the znode of the queue has another version or must not be written.
func (res *result) createStamped(cfg *Config, create *zk.CreateRequest, version int32) bool {
	responses, err := cfg.Conn.Multi(create, &zk.SetDataRequest{Path: cfg.Dir, Version: version})
	switch {
	case err == nil:
		stat := responses[1].Stat
		res.path, res.reply.Token, res.reply.Alone, res.reply.QueueCzxid = responses[0].String, stat.Mzxid, stat.NumChildren == 1, stat.Czxid
		// If the queue was created again, the contender lists it, and checks its ACL.
		res.reply.Alone = res.reply.Alone && cfg.CheckedZnode(cfg.Dir, stat.Czxid)
		if res.reply.Others = stat.NumChildren - 1; cfg.Rotation != nil {
			res.reply.Predicted = cfg.Rotation.predict(nameOf(res.path), res.reply.Others, cfg.Blocks)
		}
	case len(responses) == 2 && responses[0].Error == nil && errors.Is(responses[1].Error, zk.ErrNoAuth):
		forbidStamp(cfg.Conn, cfg.Dir)
		return false
	case len(responses) == 2 && responses[0].Error == nil && errors.Is(responses[1].Error, zk.ErrBadVersion):
		return false
	default:
		if isNoNode(err) {
			noteStampable(cfg.Conn, cfg.Dir, false) // another client may create it with data
		}
		res.reply.Err = err
	}
	return true
}
