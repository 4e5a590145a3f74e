package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// feed finds and claims items for those who want them. All of its fields belong to
// its goroutine, and to shut when that has ended.
type feed struct {
	*Queue
	sub   *session.Subscription
	epoch uint64 // of the connection, when it was last looked
	rand  *rand.Rand

	items  watched // children of the queue's node
	claims watched

	// What was listed, in order, without what was claimed since by this feed or
	// was found to be gone: delayed items and those without priority, and those
	// with one.
	timed, ranked []entry
	claimed       map[string]bool   // by somebody, as last listed or since met
	unfit         map[string]bool   // cannot be claimed, or moved when their attempts are used up
	listed        int               // how many items were
	taken         int               // how many were claimed since
	missed        int               // how many others were quicker to claim since
	doubtful      map[string]string // may be claimed by this feed without its knowing, with that id
	lookedAt      time.Time         // when the directories were last listed
	lookTook      time.Duration     // how long that listing took

	atOnce int // how many to claim in one round
	spread int // choose among so many more than that
}

const (
	// minAtOnce is how many items are claimed in the first round, if so many are
	// wanted, and maxAtOnce what that grows to while nobody else is quicker.
	minAtOnce, maxAtOnce = 8, 64
	// maxSpread is what spread grows to by collisions.
	maxSpread = 64
)

func newFeed(q *Queue) *feed {
	sub := q.subscribe()
	return &feed{
		Queue: q, sub: sub, epoch: sub.State().Epoch,
		rand:  rand.New(rand.NewPCG(uint64(q.conn.SessionID()), uint64(time.Now().UnixNano()))),
		items: watched{dir: q.path, stale: true}, claims: watched{dir: q.cfg.Claims, stale: true},
		claimed: map[string]bool{}, unfit: map[string]bool{}, doubtful: map[string]string{},
		atOnce: minAtOnce,
	}
}

// run goes round while somebody wants items, until the queue or the connection is
// closed.
func (f *feed) run() {
	for f.ctx.Err() == nil {
		n, _ := f.wanted()
		if n == 0 {
			select {
			case <-f.kick:
			case <-f.ctx.Done():
			}
			continue
		}
		err := f.round(min(n, f.atOnce))
		switch {
		case err == nil || f.ctx.Err() != nil:
		case errors.Is(err, zkerror.ErrConnClosed):
			f.connClosed()
			return
		default:
			f.log.Warn("cannot take items", "err", err)
			f.refuse(f.refine(err))
		}
	}
	f.refuse(ErrClosed)
}

// connClosed says that nothing can be taken any more.
func (f *feed) connClosed() {
	f.mu.Lock()
	f.over = f.refine(zkerror.ErrConnClosed)
	f.mu.Unlock()
	f.refuse(f.over)
}

// round hands out up to n items, or waits until there may be some.
func (f *feed) round(n int) error {
	if err := f.look(false); err != nil {
		return err
	}
	chosen, due, err := f.choose(n)
	if err != nil {
		return err
	}
	if len(chosen) == 0 {
		_, now := f.wanted()
		if now > 0 { // whoever does not wait is told what was asked since
			f.items.stale, f.claims.stale = true, true
		}
		if f.outdated() {
			if err := f.look(true); err != nil {
				return err
			}
			if chosen, due, err = f.choose(n); err != nil {
				return err
			}
		}
		if len(chosen) == 0 {
			f.refuseNow(now)
			return f.wait(due)
		}
	}
	claimed, err := f.claimAll(chosen)
	ready, tooLarge := f.open(claimed)
	if err == nil {
		err = tooLarge
	}
	for _, d := range f.hand(f.proven(ready)) {
		d.end(errUnread)
		f.release(d)
		f.busy.Go(func() { f.giveBack(d) })
	}
	return err
}

// wait waits until there may be something to take: a change, the time at which
// the next delayed item is due, or somebody who does not wait.
func (f *feed) wait(due time.Time) error {
	var timer <-chan time.Time
	if !due.IsZero() {
		t := time.NewTimer(time.Until(due))
		defer t.Stop()
		timer = t.C
	}
	for {
		if state := f.sub.State(); state.Closed {
			return zkerror.ErrConnClosed
		} else if state.Epoch != f.epoch {
			return nil
		}
		if n, now := f.wanted(); n == 0 || now > 0 {
			return nil
		}
		f.mu.Lock()
		returned := len(f.returned)
		f.mu.Unlock()
		if returned > 0 {
			return nil
		}
		select {
		case event := <-f.items.watch.C():
			return f.items.fired(event)
		case event := <-f.claims.watch.C():
			return f.claims.fired(event)
		case <-f.items.doubt:
			f.items.reset()
			return nil
		case <-f.claims.doubt:
			f.claims.reset()
			return nil
		case <-timer:
			return nil
		case <-f.kick:
		case <-f.sub.Changed():
		case <-f.ctx.Done():
			return nil
		}
	}
}

// choose takes up to n of the items that were listed, that nobody has and that are
// due, in order; those that are chosen stay listed. due is when the next delayed
// item is, if there is one, by this process's clock.
func (f *feed) choose(n int) (chosen []entry, due time.Time, err error) {
	var now int64 // by the clock of the ensemble
	var offset time.Duration
	limit := n + f.spread
	for _, list := range [][]entry{f.timed, f.ranked} {
		for _, e := range list {
			if e.due > 0 && now == 0 {
				if offset, err = f.offset(f.ctx); err != nil {
					return nil, due, err
				}
				now = time.Now().Add(offset).UnixMilli()
			}
			if e.due > now {
				due = time.UnixMilli(e.due).Add(-offset)
				break // those that follow are due later
			}
			if f.claimed[e.name] || f.unfit[e.name] {
				continue
			}
			if chosen = append(chosen, e); len(chosen) == limit {
				break
			}
		}
		if len(chosen) == limit {
			break
		}
	}
	if len(chosen) <= n {
		return chosen, due, nil
	}
	// Some of them at random, in order.
	some := chosen[:0]
	for i, e := range chosen {
		if left, need := len(chosen)-i, n-len(some); f.rand.IntN(left) < need {
			some = append(some, e)
		}
	}
	return some, due, nil
}

// without is a list without those of its entries that are gone, which are near its
// beginning.
func without(list []entry, gone map[string]bool) []entry {
	last := 0
	for i, left := 0, len(gone); i < len(list) && left > 0; i++ {
		if gone[list[i].name] {
			last = i + 1
			left--
		}
	}
	to := last
	for i := last - 1; i >= 0; i-- {
		if !gone[list[i].name] {
			to--
			list[to] = list[i]
		}
	}
	return list[to:]
}

// collided is called when others were quicker to claim some of what was chosen: one
// claim that fails costs all of them a round trip.
func (f *feed) collided(claimed int) {
	f.spread = min(max(2*f.spread, 1), maxSpread)
	f.atOnce = max(claimed, 1)
}

func (f *feed) uncontended() {
	f.spread = max(f.spread-1, 0)
	f.atOnce = min(2*f.atOnce, maxAtOnce)
}

// watched is a directory that was listed along with a watch on it.
type watched struct {
	dir     string
	stale   bool // it has changed since it was listed, or may have
	doubted bool // the watch may have been lost, and is to be set again
	watch   *watch.Watch
	doubt   <-chan time.Time // has an element when reset is to be called
}

// fired notes that the watch has fired, given what was received from it.
func (w *watched) fired(received zk.Event) error {
	event := w.watch.Take(received)
	*w = watched{dir: w.dir, stale: true}
	if errors.Is(event.Err, zk.ErrClosing) {
		return zkerror.ErrConnClosed
	}
	return nil
}

// poll notes if the watch has fired by now.
func (w *watched) poll() error {
	if w.watch.Fired() {
		return w.fired(zk.Event{})
	}
	return nil
}

// reset has the directory listed and the watch set again.
func (w *watched) reset() { w.stale, w.doubted, w.doubt = true, true, nil }

// list lists the directory, and sets a watch unless there is one.
func (f *feed) list(w *watched) ([]string, error) {
	q := watch.Query{Path: w.dir, What: watch.Children, Epoch: f.epoch, Reset: w.doubted}
	found, err := request.Read(context.Background(), f.conn, func() (watch.Found, error) {
		if f.ctx.Err() != nil {
			return watch.Found{}, ErrClosed
		}
		return watch.Try(f.conn, q)
	})
	if errors.Is(err, zkerror.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", ErrTooMany, err)
	}
	if err == nil {
		*w = watched{dir: w.dir, watch: found.Watch}
		if found.Doubt {
			w.doubt = time.After(watch.Interval(q.Reset))
		}
	}
	return found.Children, err
}
