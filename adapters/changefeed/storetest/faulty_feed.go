package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// feed is a feed behind a faulty network.
type feed struct {
	store      *Faulty
	inner      changefeed.Feed
	deliveries chan delivery
	ctx        context.Context // ctx is done when the feed is closed.
	cancel     context.CancelFunc
	done       chan struct{} // done is closed when run has returned.
	once       sync.Once
	err        error
}

// delivery is a result of Next: an event or an error.
type delivery struct {
	event changefeed.Event
	err   error
}

func newFeed(store *Faulty, inner changefeed.Feed) *feed {
	f := &feed{store: store, inner: inner, deliveries: make(chan delivery), done: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	go f.run()
	return f
}

// run receives the events of the inner feed, and delivers them with random faults.
func (f *feed) run() {
	defer close(f.done)
	var held *changefeed.Event // held is an event that is delivered after its successor.
	for {
		event, err := f.inner.Next(f.ctx)
		faults := f.store.drawEventFaults()
		if !f.awaitHealed() || !f.store.sleep(faults.lag) || !f.awaitHealed() || f.ctx.Err() != nil {
			return
		}
		switch {
		case err != nil:
			f.deliver(delivery{err: err})
			return
		case faults.cut:
			f.deliver(delivery{err: ErrInjected})
			return
		case faults.silence:
			return
		case faults.reorder && held == nil:
			held = &event
			continue
		}
		events := []changefeed.Event{event}
		if held != nil {
			events, held = append(events, *held), nil
		}
		if faults.repeat {
			events = append(events, event)
		}
		for _, e := range events {
			if !f.deliver(delivery{event: e}) {
				return
			}
		}
	}
}

// eventFaults are the faults of one event.
type eventFaults struct {
	lag                           time.Duration
	cut, silence, repeat, reorder bool
}

func (f *Faulty) drawEventFaults() eventFaults {
	f.mu.Lock()
	defer f.mu.Unlock()
	faults := f.faults
	return eventFaults{
		lag: f.drawDuration(faults.Lag), cut: f.randomBool(faults.FeedCut), silence: f.randomBool(faults.FeedSilence),
		repeat: f.randomBool(faults.FeedRepeat), reorder: f.randomBool(faults.FeedReorder),
	}
}

// awaitHealed waits until the network is healed. It returns false if the feed or the store is closed
// first.
func (f *feed) awaitHealed() bool {
	for {
		healed := f.store.untilHealed()
		if healed == nil {
			return true
		}
		select {
		case <-healed:
		case <-f.ctx.Done():
			return false
		case <-f.store.closed:
			return false
		}
	}
}

// deliver passes a result to Next. It returns false if the feed or the store is closed first.
func (f *feed) deliver(d delivery) bool {
	select {
	case f.deliveries <- d:
		return true
	case <-f.ctx.Done():
		return false
	case <-f.store.closed:
		return false
	}
}

// Next implements [changefeed.Feed].
func (f *feed) Next(ctx context.Context) (changefeed.Event, error) {
	if err := ctx.Err(); err != nil {
		return changefeed.Event{}, err
	}
	select {
	case d := <-f.deliveries:
		return d.event, d.err
	case <-ctx.Done():
		return changefeed.Event{}, ctx.Err()
	case <-f.ctx.Done():
		return changefeed.Event{}, changefeed.ErrClosed
	case <-f.store.closed:
		return changefeed.Event{}, changefeed.ErrClosed
	}
}

// Close implements [changefeed.Feed].
func (f *feed) Close() error {
	f.once.Do(func() {
		f.cancel()
		f.err = f.inner.Close()
		<-f.done
	})
	return f.err
}
