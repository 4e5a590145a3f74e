package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// feed reads the znode, waits for its watch, and reads again. There is no goroutine of its
// own: a request that was sent is kept for the next call when the context of one ends.
type feed struct {
	store  *Store
	closed chan struct{}
	once   sync.Once

	// Of Next.
	asked   <-chan request.Answer[found]
	changes <-chan zk.Event // nil as long as the znode has to be asked
	err     error           // why it has ended
}

// Subscribe implements [changefeed.Store]. Each event is the result of one read, from the
// server that the connection uses. States that were replaced before the read are skipped.
// The feed ends when the session expires or a request fails. While the connection is down
// it delivers nothing, and continues in the same session with the current state.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	select {
	case <-s.closed:
		return nil, changefeed.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &feed{store: s, closed: make(chan struct{})}, nil
}

// Next implements [changefeed.Feed].
func (f *feed) Next(ctx context.Context) (changefeed.Event, error) {
	for f.err == nil {
		select { // before what is ready as well
		case <-f.closed:
			return changefeed.Event{}, changefeed.ErrClosed
		case <-f.store.closed:
			return changefeed.Event{}, changefeed.ErrClosed
		case <-ctx.Done():
			return changefeed.Event{}, ctx.Err()
		default:
		}
		if f.changes == nil && f.asked == nil {
			f.asked = request.Start(f.store.watch)
		}
		select {
		case a := <-f.asked:
			f.asked = nil
			if e, ok := f.answer(ctx, a); ok {
				return e, nil
			}
		case e := <-f.changes:
			f.changes = nil
			if e.Err != nil {
				f.err = e.Err
			}
		case <-f.closed:
		case <-f.store.closed:
		case <-ctx.Done():
		}
	}
	return changefeed.Event{}, f.failed()
}

// answer is what the znode has said, unless that ends the feed.
func (f *feed) answer(ctx context.Context, a request.Answer[found]) (changefeed.Event, bool) {
	if a.Err != nil {
		if f.err = a.Err; request.Closed(ctx, f.store.conn, a.Err) {
			f.err = zkerror.ErrConnClosed
		}
		return changefeed.Event{}, false
	}
	f.changes = a.Value.changes
	if a.Value.stat == nil {
		return changefeed.Event{Missing: true}, true
	}
	r, err := f.store.decode(a.Value)
	switch {
	case errors.Is(err, changefeed.ErrNoRecord):
		return changefeed.Event{Missing: true}, true
	case err != nil:
		f.err = err
		return changefeed.Event{}, false
	}
	return changefeed.Event{Record: r}, true
}

// failed is the error of a feed that has ended.
func (f *feed) failed() error {
	if errors.Is(f.err, changefeed.ErrUnsuitable) {
		return f.err
	}
	return f.store.fail(context.Background(), "watch", f.err)
}

// watch reads the znode and sets the watch for its next change.
func (s *Store) watch() (found, error) {
	for {
		data, stat, changes, err := request.GetW(s.conn, s.path)
		if !errors.Is(err, zk.ErrNoNode) {
			return found{data, stat, changes}, err
		}
		exists, _, changes, err := s.conn.ExistsW(s.path)
		switch {
		case err != nil:
			return found{}, fmt.Errorf("wait for the znode: %w", err)
		case !exists:
			return found{changes: changes}, nil
		}
	}
}

// Close implements [changefeed.Feed]. The server forgets its watch at the record's next
// change.
func (f *feed) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}
