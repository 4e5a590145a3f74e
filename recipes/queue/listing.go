package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// look brings what is known of items and claims up to date: of those directories
// that have changed, where that is worth while, or in any case.
func (f *feed) look(anyhow bool) error {
	if err := f.observe(); err != nil {
		return err
	}
	if !anyhow && !f.worthwhile() {
		return nil
	}
	began := time.Now()
	var items, claims <-chan request.Answer[[]string]
	if f.items.stale {
		items = request.Start(func() ([]string, error) { return f.listOrMake(&f.items, f.makeItems) })
	}
	if f.claims.stale {
		claims = request.Start(func() ([]string, error) { return f.listOrMake(&f.claims, f.makeClaims) })
	}
	var failed error
	if claims != nil {
		if a := <-claims; a.Err != nil {
			failed = a.Err
		} else {
			f.setClaimed(a.Value)
		}
	}
	if items != nil {
		if a := <-items; a.Err != nil {
			failed = a.Err
		} else {
			f.setListed(a.Value)
		}
	}
	if items != nil || claims != nil {
		f.lookedAt = time.Now()
		f.lookTook = f.lookedAt.Sub(began)
	}
	return failed
}

// observe notes what has become stale.
func (f *feed) observe() error {
	state := f.sub.State()
	if state.Closed {
		return zkerror.ErrConnClosed
	}
	if state.Epoch != f.epoch {
		// The client library sets its watches again, but not if that fails, and can
		// lose changes while it does.
		f.epoch = state.Epoch
		f.items.reset()
		f.claims.reset()
	}
	f.takeBack()
	return errors.Join(f.items.poll(), f.claims.poll())
}

// takeBack puts items that came back on the list again. One that has become a dead
// letter is found to be gone when its turn comes.
func (f *feed) takeBack() {
	f.mu.Lock()
	returned := f.returned
	f.returned = nil
	f.mu.Unlock()
	for _, e := range returned {
		list := &f.ranked
		if e.priority == noPriority {
			list = &f.timed
		}
		if i, listed := slices.BinarySearchFunc(*list, e, compare); !listed {
			*list = slices.Insert(*list, i, e)
		}
		delete(f.claimed, e.name)
	}
}

func (f *feed) outdated() bool { return f.items.stale || f.claims.stale }

// worthwhile reports whether to list again before all listed items have been taken. A
// listing for each item would make n items cost n² names. So a listing that is outdated is
// used until an eighth of it was taken, or until time has passed, in comparison with which
// another listing costs little.
func (f *feed) worthwhile() bool {
	left := len(f.timed) + len(f.ranked)
	return f.outdated() && (left == 0 || f.taken >= max(f.listed/8, 16) || f.missed > f.listed/256 ||
		time.Since(f.lookedAt) > max(minListAge, listShare*f.lookTook))
}

const (
	// listShare bounds the time spent on listing to a twentieth of the whole.
	listShare = 20
	// minListAge is how long a listing is used at least, however quickly it was made.
	minListAge = time.Second
)

// listOrMake lists a directory that is created if it is missing: without it
// nothing could be watched.
func (f *feed) listOrMake(w *watched, makeDir func(context.Context) error) ([]string, error) {
	for {
		names, err := f.list(w)
		if !errors.Is(err, zk.ErrNoNode) {
			return names, err
		}
		if err := makeDir(f.ctx); err != nil {
			return nil, err
		}
	}
}

func (f *feed) setClaimed(names []string) {
	clear(f.claimed)
	for _, name := range names {
		if id, doubtful := f.doubtful[name]; doubtful {
			f.resolve(name, id)
		}
		f.claimed[name] = true
	}
	clear(f.doubtful)
}

// resolve gives a claim back that this feed may have made without knowing: its
// answer was lost, and then somebody deleted the register that could have told.
func (f *feed) resolve(name, id string) {
	data, stat, err := request.Get(f.conn, f.claim(name))
	if err != nil || string(data) != id {
		return
	}
	f.writer.Start(txn.Transaction{
		Ops:     []any{&zk.DeleteRequest{Path: f.claim(name), Version: -1}},
		Session: stat.EphemeralOwner,
	}).Outcome()
}

func (f *feed) setListed(names []string) {
	f.timed, f.ranked = f.timed[:0], f.ranked[:0]
	unfit := map[string]bool{}
	for _, name := range names {
		e, ok := parse(f.layout, name)
		switch {
		case !ok: // foreign
			continue
		case e.priority == noPriority:
			f.timed = append(f.timed, e)
		default:
			f.ranked = append(f.ranked, e)
		}
		if f.unfit[name] {
			unfit[name] = true
		}
	}
	slices.SortFunc(f.timed, compare)
	slices.SortFunc(f.ranked, compare)
	f.unfit = unfit
	f.listed, f.taken, f.missed = len(f.timed)+len(f.ranked), 0, 0
}
