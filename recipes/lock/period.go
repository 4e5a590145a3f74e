package lock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Period is a [Mutex] of which at most one hold begins in a period, for jobs that must run at most once a day
// or an hour in all processes together. The time at which the last hold began is stored in ZooKeeper before the
// hold begins, so that all clients respect it after a crash: a job that has failed is not repeated in the same
// period.
//
// A period is measured by the clock of the ensemble's leader, whatever the clocks of the clients are. If that
// clock is set back, the current period becomes longer by as much.
type Period struct {
	mutex *Mutex
	d     time.Duration
}

// NewPeriod returns the lock at path, of which a hold begins at least d after the previous one. d is a multiple
// of a millisecond, and the same in all programs; a program with a longer d only waits longer itself. NewPeriod
// sends no request. Options are those of [NewMutex]. Errors: [recipes.ErrInvalid].
func NewPeriod(conn *zk.Conn, path string, d time.Duration, opts ...Option) (*Period, error) {
	if d < time.Millisecond || d%time.Millisecond != 0 {
		return nil, fmt.Errorf("%w: lock.NewPeriod(%v): must be a positive multiple of a millisecond", recipes.ErrInvalid, d)
	}
	m, err := NewMutex(conn, path, opts...)
	if err != nil {
		return nil, err
	}
	return &Period{m, d}, nil
}

// Try begins a hold if none has begun in this period, without waiting for other clients. Otherwise it returns
// [ErrHeld] if a hold is in progress or another client begins one, and [ErrEarly] if not. Other errors are those of
// [Mutex.TryLock], and [recipes.ErrNotHeld] or [recipes.ErrUnconfirmed] if the lock was lost before the hold began.
func (p *Period) Try(ctx context.Context) (*Hold, error) {
	h, left, err := p.beginPeriod(ctx, p.mutex.TryLock)
	if err == nil && h == nil {
		err = p.mutex.setup.Fail("begin period of", p.mutex.setup.Path, fmt.Errorf("%w: %v left", ErrEarly, left))
	}
	return h, err
}

// Next begins a hold, and blocks until the current period and other holds have ended, also across sessions.
// Errors are those of [Mutex.Lock].
func (p *Period) Next(ctx context.Context) (*Hold, error) {
	for {
		h, left, err := p.beginPeriod(ctx, p.mutex.Lock)
		switch {
		case ctx.Err() == nil && (errors.Is(err, recipes.ErrNotHeld) || errors.Is(err, recipes.ErrUnconfirmed)):
			p.mutex.setup.Log.Warn("the hold was lost before the period began: retrying", "err", err)
			continue // if the lost hold has begun the period nevertheless, the next iteration waits for its end
		case h != nil || err != nil:
			return h, err
		}
		if err := limit.Pause(ctx, left); err != nil {
			return nil, p.mutex.setup.Fail("begin period of", p.mutex.setup.Path, err)
		}
	}
}

// Do calls f once, while it has a hold. It begins the hold as [Period.Next] does, or as [Period.Try] with
// [WithoutWaiting]. If that fails, Do returns the error and does not call f. See [Mutex.Do].
func (p *Period) Do(ctx context.Context, f func(ctx context.Context, h *Hold) error, opts ...DoOption) error {
	return doWhileHeld(ctx, p.mutex.setup, opts, p.Next, p.Try, f)
}

// Run calls f once in each period, in one of the processes that call Run, until ctx is done; then it returns
// nil. f runs as in [Mutex.Do]. If f returns an error, Run returns it; the period has begun nevertheless.
func (p *Period) Run(ctx context.Context, f func(ctx context.Context, h *Hold) error) error {
	for {
		h, err := p.Next(ctx)
		if err == nil {
			err = runHolding(ctx, p.mutex.setup, h, f)
		}
		if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Last returns the time at which the last hold began, by the clock of the ensemble's leader, or the zero time if
// none has begun. It sends one request, again after a broken connection, until ctx is done. The server to which
// the client is connected answers, so the result may be slightly out of date.
func (p *Period) Last(ctx context.Context) (time.Time, error) {
	node := p.periodPath()
	data, stat, err := connection.ReadExisting(ctx, p.mutex.setup.Conn, node)
	var begun time.Time
	if err == nil && stat != nil {
		begun, err = parseBegun(node, data)
	}
	return begun, p.mutex.setup.Fail("read the last period of", p.mutex.setup.Path, err)
}

// beginPeriod acquires the lock, and returns the hold if a new period has begun with it. Otherwise it releases the
// lock, and returns how long the current period lasts.
func (p *Period) beginPeriod(ctx context.Context, lock func(context.Context) (*Hold, error)) (h *Hold, left time.Duration, err error) {
	if h, err = lock(ctx); err != nil {
		return nil, 0, err
	}
	if left, err = p.store(ctx, h); left == 0 && err == nil {
		return h, 0, nil
	}
	if err := h.Release(); err != nil {
		p.mutex.setup.Log.Warn("the release of a lock is not confirmed yet", "err", err)
	}
	return nil, left, p.mutex.setup.Fail("begin period of", p.mutex.setup.Path, err)
}

// store stores the present time as the beginning of a period, and returns 0. If the current period has not
// ended, store stores nothing, and returns how long the current period still lasts.
//
// The data of the znode is the time at which the last period began. store learns the present time by writing
// the same data again: the reply contains the time of the leader.
func (p *Period) store(ctx context.Context, h *Hold) (left time.Duration, err error) {
	setup, node := p.mutex.setup, p.periodPath()
	written := map[string]bool{} // the times that this call may have stored
	var backoff connection.Backoff
	for ctx.Err() == nil && h.Err() == nil {
		data, stat, err := connection.ReadData(ctx, setup.Conn, node)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			_, err = h.Multi(&zk.CreateRequest{Path: node, Data: []byte("0"), Acl: setup.ACL})
		// This call has stored the time: while h exists, no other client can store a time. After h has ended,
		// another client might have stored the same time.
		case err == nil && written[string(data)] && h.Err() == nil:
			return 0, nil
		case err == nil:
			left, err = p.storeTime(h, node, data, stat.Version, written)
			if left > 0 || err == nil {
				return left, err
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, recipes.ErrUnconfirmed), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists):
			// After a lost reply, and after a write of another client without the lock, read again.
			_ = limit.Pause(ctx, backoff.Next()) // the loop ends with ctx
		default:
			return 0, err
		}
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return 0, fmt.Errorf("%w: %w", recipes.ErrNotHeld, h.Err())
}

// storeTime tries once to store the present time as the beginning of a period, given the content of the znode.
// It adds the time that it may have stored to written. If the current period has not ended, storeTime returns
// how long it still lasts.
func (p *Period) storeTime(h *Hold, node string, data []byte, version int32, written map[string]bool) (left time.Duration, err error) {
	begun, err := parseBegun(node, data)
	if err != nil {
		return 0, err
	}
	replies, err := h.Multi(&zk.SetDataRequest{Path: node, Data: data, Version: version})
	if err != nil {
		return 0, err
	}
	now := replies[0].Stat
	if left := begun.Add(p.d).Sub(time.UnixMilli(now.Mtime)); left > 0 {
		return left, nil
	}
	next := strconv.FormatInt(now.Mtime, 10)
	written[next] = true
	_, err = h.Multi(&zk.SetDataRequest{Path: node, Data: []byte(next), Version: now.Version})
	return 0, err
}

// periodPath returns the path of the znode that contains the time at which the last period began.
func (p *Period) periodPath() string { return path.Join(p.mutex.setup.Path, "period") }

// parseBegun parses data, the data of the znode node. It returns the time at which the last period began, or
// the zero time if none has begun.
func parseBegun(node string, data []byte) (begun time.Time, err error) {
	milliseconds, err := strconv.ParseInt(string(data), 10, 64)
	switch {
	case err != nil:
		return begun, fmt.Errorf("%w: the data of %s is %q, not the time of the last period", recipes.ErrInvalid, node, data)
	case milliseconds != 0:
		begun = time.UnixMilli(milliseconds)
	}
	return begun, nil
}
