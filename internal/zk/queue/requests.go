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

// requests executes the requests of one contender. Its methods may be called from any goroutine.
type requests struct {
	cfg   *Config
	plain *plainContender // nil unless the names contain no GUID

	// The method context creates ctx and turn when they are first needed, because most requests need neither. The
	// method end cancels ctx. turn has the capacity 1. It contains an element while a request pauses after a failure,
	// so that several failing requests do not cause more retries than one failing request.
	once    sync.Once
	ctx     context.Context
	cancel  context.CancelFunc
	turn    chan struct{}
	backoff connection.Backoff
}

// context returns a context that is done when the contender is over, so that the results of requests do not matter
// any more.
func (r *requests) context() context.Context {
	r.once.Do(func() {
		r.ctx, r.cancel = context.WithCancel(context.Background())
		r.turn = make(chan struct{}, 1)
	})
	return r.ctx
}

// end makes requests that are in progress return, because the contender is over.
func (r *requests) end() {
	r.context()
	r.cancel()
}

// pause pauses after a failure, at most until the contender is over.
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

// hasFailed reports whether a request has failed. It must not be called while a request is in progress.
func (r *requests) hasFailed() bool { return r.backoff != connection.Backoff{} }

// result is a request, its reply, and what the driver needs in addition. Results come from a pool, because they are
// large.
type result struct {
	request contender.Request
	reply   contender.Reply
	path    string          // the path of the znode that Name of the request identifies, or of the created znode
	sent    time.Time       // when the client has sent the request
	watch   *watch.Watch    // the watch that the request has set, or nil
	ctx     context.Context // ends the retries of a Replace; nil for other requests
}

var results = sync.Pool{New: func() any { return new(result) }}

// send performs the request of res and sends res to replies.
func (r *requests) send(res *result, replies chan<- *result) {
	r.perform(res)
	replies <- res
}

// perform executes the request of res and stores the reply in res. With Config.Rejoins, perform repeats the removal
// of the contender's znode while the servers reject the removal for a reason that can pass: otherwise the contender
// would join again behind its first znode, which exists as long as the session.
func (r *requests) perform(res *result) {
	for {
		r.performOnce(res)
		if r.cfg.Rejoins && res.request.Last && connection.IsPassing(res.reply.Err) && r.pause() == nil {
			continue
		}
		if res.request.Kind == contender.Delete && r.plain == nil && connection.IsRejection(res.reply.Err) {
			go deleteLater(r.cfg, res.path)
		}
		return
	}
}

// deleteLater deletes a znode whose deletion the servers have rejected, as soon as the servers accept the deletion,
// because the znode blocks the queue. It gives up when the session of the znode has ended or the connection is
// closed.
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

// performOnce executes the request of res once and stores the reply in res.
func (r *requests) performOnce(res *result) {
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

// notify writes the contender's znode again. It keeps data that another client has written, such as a request to
// release the lock: only the first version of the data, 0, was written by the contender.
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
			data = r.cfg.Data // write the contender's data, because the next client can read that
		case err != nil:
			return err
		default:
			version = found.Stat.Version
		}
	}
}

// list reads the names of the queue's children, and sets a watch if the request requires one.
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
	// Check the ACL of the queue's znode again, because the queue may have been created again.
	if _, res.reply.Err = repeat(r, func() (any, error) { return nil, cfg.CheckZnode(cfg.Dir, found.Stat.Czxid) }); res.reply.Err != nil {
		return
	}
	res.reply.Names, res.reply.QueueCzxid, res.watch, res.reply.Doubt = found.Children, found.Stat.Czxid, found.Watch, found.Doubt
	if cfg.Stamp {
		noteStampable(cfg.Conn, cfg.Dir, found.Stat.DataLength == 0)
	}
}

// repeat calls f until f returns no transient failure, connection.Final returns an error, or the contender is over.
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

// query returns the query of package watch for a request that reads the znode at path and sets a watch.
func query(q *contender.Request, path string, what watch.What) watch.Query {
	return watch.Query{Path: path, What: what, Epoch: q.Epoch, Reset: q.Reset}
}

// readWatched reads a child of the queue and sets a watch on it. Data of another contender that this connection
// cannot read is no error, because another contender must not be able to end this contender.
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

// findReason finds out whether the contender's znode was deleted because the queue has ended. It reads the tombstone,
// and then the znode of the queue, without its children, because all candidates do this at the same time when an
// election ends. The tombstone is created before any contender is deleted, and is deleted in one transaction with the
// znode of the queue. So if the tombstone does not exist, and a later read returns the same znode of the queue, the
// queue has not ended.
func (r *requests) findReason(res *result) {
	cfg := r.cfg
	// If the owner is closing the connection, the end of the session has deleted the znode, and a request could
	// make Close hang.
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
		res.reply.Err = r.finalOrLost(err)
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
		res.reply.Err = r.finalOrLost(res.reply.Err)
		return
	}
	// Use a part of the path as the name, so that memory contains the string only once.
	res.reply.Name = nameOf(res.path)
	if cfg.Conn.SessionID() == before {
		// If the session has changed, only the znode shows which of the two sessions has created it.
		res.reply.Session = before
	}
}

func randomGUID() (guid [16]byte) {
	_, _ = rand.Read(guid[:]) // rand.Read never returns an error
	return guid
}

// finalOrLost returns the error of a reply for the error of a request: nil for nil; the error of connection.Final if
// the request must not be repeated; and otherwise, after a pause, ErrLost.
func (r *requests) finalOrLost(err error) error {
	if err == nil {
		return nil
	}
	if final := connection.Final(r.context(), r.cfg.Conn, err); final != nil {
		return final
	}
	// Pause, because the state of the connection may not show the failure yet.
	_ = r.pause()
	return contender.ErrLost
}

// delete deletes a znode of the contender. It deletes the last znode together with the operations of
// Config.Parting.
func (r *requests) delete(res *result) {
	cfg, q := r.cfg, &res.request
	if q.Last && cfg.Parting != nil {
		if ops := cfg.Parting(q.Err); len(ops) > 0 {
			_, err := cfg.Conn.Multi(append(ops, &zk.DeleteRequest{Path: res.path, Version: -1})...)
			if err == nil || connection.Transient(err) {
				res.reply.Err = r.finalOrLost(err)
				return
			}
		}
	}
	if r.plain != nil {
		res.reply.Err = r.finalOrLost(r.plain.delete(res.path))
		return
	}
	res.reply.Err = r.finalOrLost(cfg.Conn.Delete(res.path, -1))
}

// search returns the names of the contender's znodes, which begin with one of the prefixes, in the order of the
// queue. The result is not older than the call, because search calls Sync: a server that lags behind would not show
// the newest znodes.
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
			return r.plain.registerOwn(found.Children)
		}
		return found.Children, err
	})
	contenders, others, _ := contender.Order(children, r.cfg.Tombstone)
	// Search others as well, because the names of kazoo's leases contain no number.
	for _, name := range append(contenders, others...) {
		if contender.HasAnyPrefix(name, prefixes) {
			names = append(names, name)
		}
	}
	return names, err
}

// replaceZnode replaces a znode by a znode with another name, the same GUID and the same number, in one
// transaction. The new name is used only once, so the transaction can be repeated after a lost reply: the error
// "node exists" means that the servers have applied the transaction before. If the old znode does not exist,
// another client or the end of the session has deleted it.
func (r *requests) replaceZnode(res *result) {
	// A transaction may outlast this call, so the function that sends it must not use res, which another request may
	// use then.
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
	// If the read fails, there is no watch, but the checks of the lease notice a deletion of the znode.
	found, err := watch.Read(res.ctx, cfg.Conn, watch.Query{Path: to, What: watch.Children})
	if isNoNode(err) {
		res.reply.Err = err
	}
	res.watch = found.Watch
}

// A create can write the znode of the queue in the same transaction. The Stat in the reply then contains the number
// of children of the queue and, as the time of the change, the creation zxid of the contender's znode: if the
// contender is the only child, its turn begins after one round trip. The write replaces the data of the queue's
// znode. So the create writes this znode only if its data was empty when a client of this connection last read it,
// and, with Config.Unused, if no client has written it since.

// stampable contains the queues whose znodes contained no data when they were last read. The value is false if the
// ACL does not permit the write.
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

// stampVersion returns the version that the znode of the queue must have when the create writes it, or -1 for any
// version. ok is false if the create must not write the znode.
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

// createZnode creates the contender's znode, and writes the znode of the queue in the same transaction if
// stampVersion permits the write.
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

// createStamped creates the contender's znode and writes the znode of the queue. It returns false if the servers
// have done neither, because the znode of the queue has another version or must not be written.
func (res *result) createStamped(cfg *Config, create *zk.CreateRequest, version int32) bool {
	responses, err := cfg.Conn.Multi(create, &zk.SetDataRequest{Path: cfg.Dir, Version: version})
	switch {
	case err == nil:
		stat := responses[1].Stat
		res.path, res.reply.Token, res.reply.Alone, res.reply.QueueCzxid = responses[0].String, stat.Mzxid, stat.NumChildren == 1, stat.Czxid
		// If the queue was created again, the contender must list the queue, which checks the ACL of the new znode.
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
			noteStampable(cfg.Conn, cfg.Dir, false) // another client may create the queue's znode with data
		}
		res.reply.Err = err
	}
	return true
}
