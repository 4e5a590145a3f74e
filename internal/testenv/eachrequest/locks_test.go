package eachrequest

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

// holder contains the methods that the holds of all kinds of locks have.
type holder interface {
	Err() error
	Token() int64
	Path() string
	Multi(ops ...any) ([]zk.MultiResponse, error)
	Release() error
}

type locker func(ctx context.Context) (holder, error)

// useLock makes the two clients hold a lock in turn, each while the other client waits for the lock.
func useLock(r *Run, most int, open func(conn *zk.Conn) (locker, error)) {
	const path = "/app/lock"
	client, other := openBoth(r, open)
	turn := func() {
		var h holder
		if r.Require("lock", func(ctx context.Context) (err error) { h, err = other(ctx); return err }) {
			r.Held(path, most, false, h)
			time.Sleep(pause)
			r.Require("release", func(context.Context) error { return h.Release() })
		}
	}
	r.Also(turn)
	time.Sleep(pause / 2)
	for range 2 {
		var h holder
		if !r.Try("lock", func(ctx context.Context) (err error) { h, err = client(ctx); return err }) {
			continue
		}
		r.Held(path, most, true, h)
		r.Also(turn)
		time.Sleep(pause / 2)
		r.Once("multi", func(context.Context) error {
			_, err := h.Multi(&zk.CheckVersionRequest{Path: "/app", Version: -1})
			return err
		})
		r.Finish("release", h.Release)
	}
	turn()
}

func useRWMutex(r *Run) {
	const path = "/app/lock"
	client, other := openBoth(r, func(conn *zk.Conn) (*lock.RWMutex, error) { return lock.NewRWMutex(conn, path) })
	write := func() {
		var h *lock.WriteHold
		if r.Require("lock", func(ctx context.Context) (err error) { h, err = other.Lock(ctx); return err }) {
			r.Held(path, 1, false, h)
			time.Sleep(pause)
			r.Require("release", func(context.Context) error { return h.Release() })
		}
	}
	r.Also(write)
	time.Sleep(pause / 2)
	var h *lock.Hold
	if r.Try("lock for reading", func(ctx context.Context) (err error) { h, err = client.RLock(ctx); return err }) {
		r.Held(path, 1, true, h)
		r.Also(write)
		time.Sleep(pause / 2)
		r.Finish("release", h.Release)
	}
	var w *lock.WriteHold
	if r.Try("lock", func(ctx context.Context) (err error) { w, err = client.Lock(ctx); return err }) {
		r.Held(path, 1, true, w)
		r.Also(write)
		time.Sleep(pause / 2)
		r.Once("downgrade", func(context.Context) error { return w.Downgrade() })
		r.Finish("release", w.Release)
	}
	write()
}

// token is a MultiHold with a method Token, which returns the token of one of the locks.
type token struct {
	*lock.MultiHold
	path string
}

func (t token) Token() int64 { return t.MultiHold.TokenOf(t.path) }

func useMultiLock(r *Run) {
	useParts(r, func(conn *zk.Conn) (lock.Part, error) { return lock.NewMutex(conn, "/app/b") })
}

// useParts uses a MultiLock of the mutex /app/a and of the lock at /app/b that open returns.
func useParts(r *Run, open func(conn *zk.Conn) (lock.Part, error)) {
	client, other := openBoth(r, func(conn *zk.Conn) (*lock.MultiLock, error) {
		a, err := lock.NewMutex(conn, "/app/a")
		b, err2 := open(conn)
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		return lock.NewMultiLock(b, a)
	})
	turn := func() {
		var h *lock.MultiHold
		if r.Require("lock", func(ctx context.Context) (err error) { h, err = other.Lock(ctx); return err }) {
			r.Held("/app/b", 1, false, token{h, "/app/b"})
			time.Sleep(pause)
			r.Require("release", func(context.Context) error { return h.Release() })
		}
	}
	r.Also(turn)
	time.Sleep(pause / 2)
	var h *lock.MultiHold
	if r.Try("lock", func(ctx context.Context) (err error) { h, err = client.Lock(ctx); return err }) {
		r.Held("/app/b", 1, true, token{h, "/app/b"})
		r.Also(turn)
		time.Sleep(pause / 2)
		r.Finish("release", h.Release)
	}
	turn()
}

// useSharedCount raises and lowers the limit of a semaphore while clients wait for leases.
func useSharedCount(r *Run) {
	const path, most = "/app/semaphore", 2
	events := newBalance(r)
	defer events.requireBalanced()
	client, other := openBoth(r, func(conn *zk.Conn) (*lock.Semaphore, error) {
		return lock.NewSemaphore(conn, path, 1, lock.WithCuratorLayout(), lock.WithSharedCount("/app/limit"), recipes.WithEvents(events.add))
	})
	acquire := func(done chan<- *lock.Hold) {
		var h *lock.Hold
		if r.Require("acquire", func(ctx context.Context) (err error) { h, err = other.Acquire(ctx, 1); return err }) {
			r.Held(path, most, false, h)
		}
		done <- h
	}
	first, second := make(chan *lock.Hold, 1), make(chan *lock.Hold, 1)
	acquire(first)
	r.Also(func() { acquire(second) })
	time.Sleep(pause)
	if ok, _ := r.Once("set the limit", func(ctx context.Context) error { return client.SetLimit(ctx, most) }); !ok {
		r.Require("set the limit", func(ctx context.Context) error { return other.SetLimit(ctx, most) })
	}
	holds := []*lock.Hold{<-first, <-second}
	r.Also(func() {
		time.Sleep(pause)
		r.Require("set the limit", func(ctx context.Context) error { return other.SetLimit(ctx, 1) })
		for _, h := range holds {
			time.Sleep(pause)
			if h != nil {
				r.Require("release", func(context.Context) error { return h.Release() })
			}
		}
	})
	var h *lock.Hold
	if r.Try("acquire", func(ctx context.Context) (err error) { h, err = client.Acquire(ctx, 1); return err }) {
		r.Held(path, most, true, h)
		r.Finish("release", h.Release)
	}
	r.Try("limit", func(ctx context.Context) error {
		limit, err := client.Limit(ctx)
		if err == nil && limit != 1 && limit != most {
			r.Violate("the limit of the semaphore is %d, want 1 or %d", limit, most)
		}
		return err
	})
}

// useRequests makes the other client request that the client releases its leases, while the client still waits for
// them.
func useRequests(r *Run) {
	const path = "/app/semaphore"
	events := newBalance(r)
	defer events.requireBalanced()
	client, other := openBoth(r, func(conn *zk.Conn) (*lock.Semaphore, error) {
		return lock.NewSemaphore(conn, path, 1, recipes.WithEvents(events.add))
	})
	var first *lock.Hold
	if !r.Require("acquire", func(ctx context.Context) (err error) { first, err = other.Acquire(ctx, 1); return err }) {
		return
	}
	r.Held(path, 1, false, first)
	requested := make(chan struct{})
	r.Also(func() {
		defer close(requested)
		time.Sleep(pause)
		var all []lock.Contender
		r.Require("contenders", func(ctx context.Context) (err error) { all, err = other.Contenders(ctx); return err })
		for _, c := range all {
			r.Require("request", func(ctx context.Context) error {
				if err := other.RequestRelease(ctx, c); !errors.Is(err, recipes.ErrNotHeld) {
					return err
				}
				return nil
			})
		}
		// Make a contender wait behind the client: the client then writes its znode again, and must keep the
		// request that the znode contains.
		r.Also(func() {
			var h *lock.Hold
			if r.Require("acquire", func(ctx context.Context) (err error) { h, err = other.Acquire(ctx, 1); return err }) {
				r.Held(path, 1, false, h)
				r.Require("release", func(context.Context) error { return h.Release() })
			}
		})
		time.Sleep(pause)
		r.Require("release", func(context.Context) error { return first.Release() })
	})
	var h *lock.Hold
	if r.Try("acquire", func(ctx context.Context) (err error) { h, err = client.Acquire(ctx, 1); return err }) {
		// Two holds may be valid at the same time: if the fault expires the session of the client by force, the
		// next contender can receive the leases before the client notices the expiry.
		r.Held(path, 2, true, h)
		<-requested
		// If the session of the client has expired, the contender has another znode, so the list may not contain
		// the znode to which the request was sent.
		r.Try("contenders", func(ctx context.Context) error {
			_, err := client.Contenders(ctx)
			return err
		})
		asked := h.ReleaseRequested()
		r.Await("the request is reported", func() bool {
			data, _, err := r.Other.Get(h.Path())
			select {
			case <-asked:
				return true
			default:
				return h.Err() != nil || err != nil || string(data) != "__REVOKE__"
			}
		})
		r.Finish("release", h.Release)
	}
}
