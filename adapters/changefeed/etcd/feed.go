package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/internal/latest"
)

// quiet is how long a feed waits for a word before it reads: a connection that is dead, and
// over which nothing is sent, says nothing. limit is how long that may take.
const (
	quiet = 3 * time.Second
	limit = 2 * time.Second
)

// feed watches the record on a goroutine of its own, run.
type feed struct {
	store  *Store
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // run has ended
	failed chan struct{} // err is set
	err    error
	events chan changefeed.Event // the newest that was not read
	told   int64                 // the revision of that, for run
}

// Subscribe implements [changefeed.Store]. The feed delivers the states of the record,
// but skips states that were replaced before they were read. It ends with an error if the
// server that it watches has lost contact with the other servers. It delivers nothing
// while the client connects to another server, and ends with an error if that takes more
// than three seconds.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	f := &feed{store: s, done: make(chan struct{}), failed: make(chan struct{}), events: make(chan changefeed.Event, 1)}
	revision, err := f.read(ctx)
	if err != nil {
		return nil, err
	}
	f.ctx, f.cancel = context.WithCancel(s.closed)
	s.mu.Lock()
	s.open[f] = struct{}{}
	s.mu.Unlock()
	go f.run(revision)
	return f, nil
}

// read tells what there is, and returns the store's revision at which it was that.
func (f *feed) read(ctx context.Context) (int64, error) {
	r, revision, err := f.store.read(ctx)
	switch {
	case errors.Is(err, changefeed.ErrNoRecord):
		f.tell(changefeed.Event{Missing: true}, revision)
	case err != nil:
		return 0, err
	default:
		f.tell(changefeed.Event{Record: r}, revision)
	}
	return revision, nil
}

// tell puts an event in the place of one that was not read, unless a newer was told.
func (f *feed) tell(e changefeed.Event, revision int64) {
	if revision <= f.told {
		return
	}
	f.told = revision
	latest.Send(f.events, e)
}

// run watches from the revision after the one that was read, so that nothing is missed, and
// reads again where that was compacted away meanwhile.
func (f *feed) run(revision int64) {
	defer close(f.done)
	defer f.cancel()
	for {
		err := f.watch(revision)
		if errors.Is(err, errCompacted) {
			revision, err = f.again()
		}
		if err != nil {
			if f.ctx.Err() == nil { // it was not closed
				f.err = err
				close(f.failed)
			}
			return
		}
	}
}

var errCompacted = errors.New("the revision was compacted")

// again is read, in limited time.
func (f *feed) again() (int64, error) {
	ctx, cancel := context.WithTimeout(f.ctx, limit)
	defer cancel()
	revision, err := f.read(ctx)
	if err != nil {
		return 0, fmt.Errorf("after the quiet time: %w", err)
	}
	return revision, nil
}

// watch returns why the watch has ended.
func (f *feed) watch(revision int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(f.ctx))
	defer cancel()
	// Opening waits for the server.
	opened := make(chan clientv3.WatchChan, 1)
	go func() { opened <- f.store.client.Watch(ctx, f.store.key, clientv3.WithRev(revision+1)) }()
	defer func() {
		if opened != nil {
			cancel()
			<-opened
		}
	}()
	var answers clientv3.WatchChan
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		select {
		case answers = <-opened:
			opened = nil
		case a, ok := <-answers:
			switch {
			case !ok:
				return f.store.fail(f.ctx, "watch", errors.New("the server has ended the watch"))
			case a.CompactRevision != 0:
				return errCompacted
			case a.Err() != nil:
				return f.store.fail(f.ctx, "watch", a.Err())
			}
			for _, e := range a.Events {
				if err := f.changed(e); err != nil {
					return err
				}
			}
			timer.Reset(quiet)
		case <-timer.C:
			if _, err := f.again(); err != nil {
				return err
			}
			timer.Reset(quiet)
		case <-f.store.client.Ctx().Done():
			return f.store.fail(f.ctx, "watch", f.store.client.Ctx().Err())
		case <-f.ctx.Done():
			return f.ctx.Err()
		}
	}
}

func (f *feed) changed(e *clientv3.Event) error {
	if e.Type == clientv3.EventTypeDelete {
		f.tell(changefeed.Event{Missing: true}, e.Kv.ModRevision)
		return nil
	}
	r, err := f.store.decode(e.Kv, e.Kv)
	if err != nil {
		return err
	}
	f.tell(changefeed.Event{Record: r}, e.Kv.ModRevision)
	return nil
}

// Next implements [changefeed.Feed].
func (f *feed) Next(ctx context.Context) (changefeed.Event, error) {
	select { // before what has come until then
	case <-f.failed:
		return changefeed.Event{}, f.err
	case <-f.ctx.Done():
		return changefeed.Event{}, f.over()
	case <-ctx.Done():
		return changefeed.Event{}, ctx.Err()
	default:
	}
	select {
	case e := <-f.events:
		return e, nil
	case <-f.failed:
		return changefeed.Event{}, f.err
	case <-f.ctx.Done():
		return changefeed.Event{}, f.over()
	case <-ctx.Done():
		return changefeed.Event{}, ctx.Err()
	}
}

// over is the error of a feed that has failed, or was closed.
func (f *feed) over() error {
	select {
	case <-f.failed:
		return f.err
	default:
		return changefeed.ErrClosed
	}
}

// Close implements [changefeed.Feed].
func (f *feed) Close() error {
	f.cancel()
	<-f.done // which waits for nothing else
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	delete(f.store.open, f)
	return nil
}
