package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// What ends feeds and changes.
var (
	errDisconnected = errors.New("the connection to the server was lost")
	errEnded        = errors.New("the consumer has ended")
	errBucket       = errors.New("the bucket was deleted or created")
)

// quiet is how long a feed waits for a word before it asks. A consumer that its server has
// forgotten says nothing, and neither does one of a bucket that was deleted.
const quiet = 3 * time.Second

// watch is a consumer of a bucket's changes, and what tells of its end.
type watch struct {
	store    *Store
	life     int64 // of the bucket; 0 if there is none
	updates  <-chan jetstream.KeyValueEntry
	statuses chan nats.Status
	timer    *time.Timer

	stale     chan struct{} // closed when the store has seen another life of the bucket
	staleOnce sync.Once

	ctx    context.Context // as long as it is open
	cancel context.CancelFunc
	once   sync.Once
	err    error // why it has ended, for the goroutine that calls next
	asked  <-chan answer
}

// answer is what there is in the bucket, after a quiet time.
type answer struct {
	record changefeed.Record
	life   int64
	err    error
}

// watch opens a consumer of the keys that name gives for the bucket's life.
func (s *Store) watch(ctx context.Context, name func(life int64) string, opts ...jetstream.WatchOpt) (*watch, error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	w := &watch{store: s, stale: make(chan struct{}), statuses: s.conn.StatusChanged(nats.RECONNECTING, nats.CLOSED)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.timer = time.NewTimer(quiet)
	err = w.start(ctx, name, opts)
	if err != nil {
		w.end()
		return nil, s.fail(ctx, "watch", err)
	}
	s.mu.Lock()
	s.open[w] = struct{}{}
	s.mu.Unlock()
	if s.closed.Err() != nil { // and Close may not have seen it
		w.end()
		return nil, changefeed.ErrClosed
	}
	return w, nil
}

func (w *watch) start(ctx context.Context, name func(life int64) string, opts []jetstream.WatchOpt) error {
	if !w.store.conn.IsConnected() { // and the status may have come before we listened
		if w.store.conn.IsClosed() {
			return nats.ErrConnectionClosed
		}
		return errDisconnected
	}
	var err error
	w.life, err = w.store.life(ctx)
	if errors.Is(err, errNoBucket) {
		w.timer.Reset(quiet / 6) // until it is made
		return nil
	}
	if err != nil {
		return err
	}
	kv, err := w.store.kv(ctx)
	if err != nil {
		return err
	}
	// The consumer lives as long as the context that it was made with.
	stop := context.AfterFunc(ctx, w.cancel)
	watcher, err := kv.Watch(w.ctx, name(w.life), opts...)
	if err != nil {
		return err
	}
	w.updates = watcher.Updates()
	if !stop() {
		return ctx.Err()
	}
	return nil
}

// next waits for an entry, which is nil after the first ones, or for the answer after a
// quiet time.
func (w *watch) next(ctx context.Context) (jetstream.KeyValueEntry, *answer, error) {
	if w.store.closed.Err() != nil || w.ctx.Err() != nil {
		return nil, nil, changefeed.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	select { // before what has come until then
	case <-w.statuses:
		return nil, nil, w.disconnected()
	default:
	}
	for w.err == nil {
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-w.ctx.Done():
			return nil, nil, changefeed.ErrClosed
		case <-w.store.closed.Done():
			return nil, nil, changefeed.ErrClosed
		case <-w.statuses:
			return nil, nil, w.disconnected()
		case e, ok := <-w.updates:
			if !ok {
				return nil, nil, w.failed(errEnded)
			}
			w.timer.Reset(quiet)
			return e, nil, nil
		case <-w.stale:
			return nil, nil, w.failed(errBucket)
		case <-w.timer.C:
			w.asked = w.ask()
		case a := <-w.asked:
			w.asked = nil
			w.timer.Reset(quiet)
			switch {
			case a.err != nil && !errors.Is(a.err, changefeed.ErrNoRecord):
				return nil, nil, w.failed(a.err)
			case a.life != w.life:
				return nil, nil, w.failed(errBucket)
			}
			return nil, &a, nil
		}
	}
	return nil, nil, w.err
}

// disconnected is what a status means: that of the connection, or that there are no more.
func (w *watch) disconnected() error {
	switch {
	case w.ctx.Err() != nil:
		return changefeed.ErrClosed
	case w.store.conn.IsClosed():
		return w.failed(nats.ErrConnectionClosed)
	}
	return w.failed(errDisconnected)
}

// failed ends the watch, for good.
func (w *watch) failed(err error) error {
	if w.err == nil {
		w.err = w.store.fail(w.ctx, "watch", err)
	}
	return w.err
}

// seen ends the watches of other lives of the bucket than the one that was seen, 0 for none.
// Otherwise they would notice after a quiet time only.
func (s *Store) seen(life int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.open {
		if w.life != life {
			w.staleOnce.Do(func() { close(w.stale) })
		}
	}
}

// ask reads what there is.
func (w *watch) ask() <-chan answer {
	c := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
		defer cancel()
		var a answer
		a.life, a.err = w.store.life(ctx)
		switch {
		case errors.Is(a.err, errNoBucket):
			a.err = changefeed.ErrNoRecord
		case a.err == nil:
			a.record, a.err = w.store.last(ctx, a.life)
		default:
			a.err = fmt.Errorf("after the quiet time: %w", a.err)
		}
		c <- a
	}()
	return c
}

// patience is how long end waits for the subscription's end. The library removes the
// consumer from the server after that, on a goroutine of its own: while the server is away
// it tries for five seconds, for which Stop would block.
const patience = 1500 * time.Millisecond

// end gives everything back. It may be called from any goroutine, and again.
func (w *watch) end() {
	w.once.Do(func() {
		w.cancel() // which ends the consumer
		w.store.mu.Lock()
		delete(w.store.open, w)
		w.store.mu.Unlock()
		w.store.conn.RemoveStatusListener(w.statuses)
		w.timer.Stop()
		if w.updates == nil {
			return
		}
		// The library's goroutine may be handing over an entry, and ends after that.
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			limit := time.After(10 * time.Second)
			for {
				select {
				case _, ok := <-w.updates:
					if !ok {
						return
					}
				case <-limit:
					return
				}
			}
		}()
		select {
		case <-ended:
		case <-time.After(patience):
		}
	})
}
