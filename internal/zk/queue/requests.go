package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// requests executes the requests of one contender. prepare is called on the driver's goroutine;
// the function that it returns may run on another one.
type requests struct {
	cfg    *Config
	plain  *plainQueue // nil unless the names contain no GUID
	user   *plainUser
	pauses *pauses
	// ctx is done when the contender is over, and results do not matter any more.
	ctx  context.Context
	over context.CancelFunc
	// cancel ends the repetition of a Replace; nil before there is one.
	cancel context.CancelFunc
}

// pauses determines how long to pause after failures of requests, of which several can be in
// progress.
type pauses struct {
	// turn, of capacity 1, holds an element while a request pauses: several failing requests
	// together are not retried more often than one.
	turn    chan struct{}
	backoff request.Backoff
}

// wait pauses after a failure, or until ctx is done.
func (p *pauses) wait(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
		return request.Pause(ctx, p.backoff.Next())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// result is the reply to a request, and what the driver needs in addition.
type result struct {
	request contender.Request
	reply   contender.Reply
	path    string       // of the znode that was created or read
	sent    time.Time    // when the request was sent
	watch   *watch.Watch // that was set
}

func newRequests(cfg *Config) requests {
	r := requests{cfg: cfg, pauses: &pauses{turn: make(chan struct{}, 1)}}
	r.ctx, r.over = context.WithCancel(context.Background())
	if _, ok := cfg.Naming.Plain(); ok {
		r.plain, r.user = joinPlain(cfg)
	}
	return r
}

// close ends the contender's use of what contenders share.
func (r *requests) close() {
	r.over()
	r.cancelReplace()
	if r.plain != nil {
		r.plain.leave(r.user)
	}
}

// cancelReplace ends the repetition of a Replace, whose result does not matter any more.
func (r *requests) cancelReplace() {
	if r.cancel != nil {
		r.cancel()
	}
}

// prepare returns the function that executes a request.
func (r *requests) prepare(q contender.Request) func() result {
	cfg := r.cfg
	switch q.Kind {
	case contender.Create:
		prefix := cfg.Naming.NamePrefix
		if cfg.Prefix != nil {
			prefix = cfg.Prefix
		}
		var random [16]byte
		_, _ = rand.Read(random[:]) // never fails
		return func() result { return r.create(q, prefix(contender.GUIDOf(random))) }
	case contender.Delete:
		return func() result { return r.delete(q) }
	case contender.Replace:
		r.cancelReplace()
		var ctx context.Context
		ctx, r.cancel = context.WithCancel(context.Background())
		return func() result { return cfg.replace(ctx, q) }
	case contender.Search:
		return func() result {
			names, err := r.search(q.Prefixes)
			return result{request: q, reply: contender.Reply{Err: err, Names: names}}
		}
	}
	return func() result { return r.read(q) }
}

// read executes a request that can be repeated until it is answered.
func (r *requests) read(q contender.Request) result {
	cfg, res := r.cfg, result{request: q}
	switch q.Kind {
	case contender.MakeQueue:
		res.reply.Err = cfg.MakeDir(r.ctx)
	case contender.List:
		found, err := repeat(r, func() (watch.Found, error) {
			if q.Watched {
				return watch.Try(cfg.Conn, cfg.query(q, cfg.Dir, watch.Children))
			}
			return watch.Listing(cfg.Conn, cfg.Dir)
		})
		if res.reply.Err = err; err == nil {
			res.reply.Names, res.reply.QueueCzxid, res.watch, res.reply.Doubt = found.Children, found.Stat.Czxid, found.Watch, found.Doubt
			if cfg.Stamp {
				noteStampable(cfg.Conn, cfg.Dir, found.Stat.DataLength == 0)
			}
		}
	case contender.ReadOwn:
		res.readWatched(r, watch.Children)
	case contender.ReadPredecessor, contender.ReadBefore:
		res.readWatched(r, watch.Data)
	case contender.Inspect:
		stat, err := r.stat(q.Name)
		res.setStat(stat, err)
	case contender.FindReason:
		res.findReason(r)
	case contender.Notify:
		_, res.reply.Err = repeat(r, func() (*zk.Stat, error) { return cfg.Conn.Set(path.Join(cfg.Dir, q.Name), cfg.Data, -1) })
	}
	return res
}

// repeat repeats f until it returns anything but a transient failure. It blocks until the
// connection answers. It ends with zkerror.ErrConnClosed, and when the contender is over.
func repeat[T any](r *requests, f func() (T, error)) (T, error) {
	for {
		value, err := f()
		switch {
		case !request.Transient(err):
			return value, err
		case request.Closed(r.ctx, r.cfg.Conn, err):
			return value, zkerror.ErrConnClosed
		}
		if err := r.pauses.wait(r.ctx); err != nil {
			return value, err
		}
	}
}

func (cfg *Config) query(q contender.Request, path string, what watch.What) watch.Query {
	return watch.Query{Path: path, What: what, Epoch: q.Epoch, Reset: q.Reset}
}

func (res *result) readWatched(r *requests, what watch.What) {
	cfg := r.cfg
	res.path = path.Join(cfg.Dir, res.request.Name)
	found, err := repeat(r, func() (watch.Found, error) {
		return watch.Try(cfg.Conn, cfg.query(res.request, res.path, what))
	})
	if res.setStat(found.Stat, err); err == nil {
		res.watch, res.reply.Doubt = found.Watch, found.Doubt
	}
}

func (res *result) setStat(stat *zk.Stat, err error) {
	if res.reply.Err = err; err == nil {
		res.reply.Owner, res.reply.Czxid, res.reply.Version, res.reply.Ephemeral = stat.EphemeralOwner, stat.Czxid, stat.Version, session.IsEphemeral(stat)
	}
}

// stat returns the Stat of a child of the queue, or zk.ErrNoNode.
func (r *requests) stat(name string) (*zk.Stat, error) {
	return repeat(r, func() (*zk.Stat, error) { return statOf(r.cfg.Conn, path.Join(r.cfg.Dir, name)) })
}

// statOf returns the Stat of a znode, or zk.ErrNoNode. It sends one request.
func statOf(conn *zk.Conn, path string) (*zk.Stat, error) {
	exists, stat, err := conn.Exists(path)
	if err == nil && !exists {
		err = zk.ErrNoNode
	}
	return stat, err
}

// findReason reads the tombstone, and then the znode of the queue, whose children it does not
// list: when an election ends, all candidates do this at the same time. The tombstone is
// created before any contender is deleted, and is deleted together with the znode of the
// queue. So if there is no tombstone, and later the same znode exists, the queue has not ended.
func (res *result) findReason(r *requests) {
	cfg := r.cfg
	// Close, too, deletes the znode, and must not be disturbed.
	request.AwaitClosing(r.ctx, cfg.Conn, closingTime)
	if cfg.Tombstone != "" {
		_, err := r.stat(cfg.Tombstone)
		if !isNoNode(err) {
			res.reply.Ended, res.reply.Err = err == nil, err
			return
		}
	}
	stat, err := repeat(r, func() (*zk.Stat, error) { return statOf(cfg.Conn, cfg.Dir) })
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
func (r *requests) create(q contender.Request, prefix string) result {
	cfg := r.cfg
	res := result{request: q, sent: time.Now()}
	res.reply.Prefix = prefix
	before := cfg.Conn.SessionID()
	switch {
	case r.plain != nil:
		res.path, res.reply.Err = r.plain.create(r.user, prefix)
	case cfg.Stamp && isStampable(cfg.Conn, cfg.Dir):
		res.createStamped(cfg, prefix)
	default:
		res.path, res.reply.Err = cfg.Conn.Create(path.Join(cfg.Dir, prefix), cfg.Data, cfg.createFlags(), cfg.ACL)
	}
	if res.reply.Err != nil {
		res.reply.Err = r.lost(res.reply.Err)
		return res
	}
	// The name is a part of the path, so that both are kept once.
	res.reply.Name = res.path[len(res.path)-len(path.Base(res.path)):]
	if cfg.Conn.SessionID() == before {
		// Otherwise only the znode shows in which of two sessions it was created.
		res.reply.Session = before
	}
	return res
}

func (cfg *Config) createFlags() int32 {
	if !cfg.Naming.Sequential() {
		return zk.FlagEphemeral
	}
	return zk.FlagEphemeral | zk.FlagSequence
}

// lost returns ErrLost for a transient error, after a pause, and zkerror.ErrConnClosed if the
// connection is closed.
func (r *requests) lost(err error) error {
	switch {
	case !request.Transient(err):
		return err
	case request.Closed(r.ctx, r.cfg.Conn, err):
		return zkerror.ErrConnClosed
	}
	// The state of the connection may not yet show the failure.
	_ = r.pauses.wait(r.ctx)
	return contender.ErrLost
}

// delete deletes a znode of the contender. The last one is deleted in one transaction with
// what the recipe adds.
func (r *requests) delete(q contender.Request) result {
	cfg, znode := r.cfg, path.Join(r.cfg.Dir, q.Name)
	res := result{request: q}
	if q.Last && cfg.Parting != nil {
		if ops := cfg.Parting(q.Err); len(ops) > 0 {
			_, err := cfg.Conn.Multi(append(ops, &zk.DeleteRequest{Path: znode, Version: -1})...)
			if err == nil || request.Transient(err) {
				res.reply.Err = r.lost(err)
				return res
			}
		}
	}
	res.reply.Err = r.lost(cfg.Conn.Delete(znode, -1))
	return res
}

// search returns the znodes with one of the prefixes, the first in the queue first, as of a
// time after the call: without Sync a server that lags behind would not show the newest.
func (r *requests) search(prefixes []string) (names []string, err error) {
	if r.plain != nil {
		return r.plain.search(r)
	}
	children, err := repeat(r, func() ([]string, error) {
		if _, err := r.cfg.Conn.Sync(r.cfg.Dir); err != nil {
			return nil, err
		}
		found, err := watch.Listing(r.cfg.Conn, r.cfg.Dir)
		return found.Children, err
	})
	contenders, others, _ := contender.Order(children, r.cfg.Tombstone)
	for _, name := range append(contenders, others...) { // leases of kazoo have no number
		if contender.HasAnyPrefix(name, prefixes) {
			names = append(names, name)
		}
	}
	return names, err
}

// replace replaces a znode by one with another name, the same GUID and the same number, in one
// transaction: at every moment exactly one of them exists. The new name is used only once, so
// the transaction can be repeated after a lost reply: "node exists" means that it was applied
// before, and a missing old znode that another client has deleted it. In another session it
// fails for that reason as well.
func (cfg *Config) replace(ctx context.Context, q contender.Request) result {
	res := result{request: q, path: path.Join(cfg.Dir, q.To)}
	res.sent, res.reply.Err = request.Read(ctx, cfg.Conn, func() (time.Time, error) {
		sent := time.Now()
		_, err := cfg.Conn.Multi(
			&zk.CreateRequest{Path: res.path, Data: cfg.Data, Acl: cfg.ACL, Flags: zk.FlagEphemeral},
			&zk.DeleteRequest{Path: path.Join(cfg.Dir, q.Name), Version: -1},
		)
		if errors.Is(err, zk.ErrNodeExists) {
			err = nil
		}
		return sent, err
	})
	if res.reply.Err != nil {
		return res
	}
	// Without the watch the checks of the lease notice the deletion.
	found, err := watch.Read(ctx, cfg.Conn, watch.Query{Path: res.path, What: watch.Children})
	if isNoNode(err) {
		res.reply.Err = err
	}
	res.watch = found.Watch
	return res
}
