package changefeedtest

import (
	"context"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// feed is one behind a network.
type feed struct {
	f      *Faulty
	inner  changefeed.Feed
	out    chan told
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // the pump has ended
	once   sync.Once
	err    error
}

// told is what Next returns.
type told struct {
	event changefeed.Event
	err   error
}

func newFeed(f *Faulty, inner changefeed.Feed) *feed {
	d := &feed{f: f, inner: inner, out: make(chan told), done: make(chan struct{})}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	go d.pump()
	return d
}

// pump carries events, one after the other.
func (d *feed) pump() {
	defer close(d.done)
	var held *changefeed.Event
	for {
		event, err := d.inner.Next(d.ctx)
		lag, cut, silence, repeat, reorder := d.f.fate()
		if !d.passes() || !d.f.sleep(lag) || !d.passes() || d.ctx.Err() != nil {
			return
		}
		switch {
		case err != nil:
			d.tell(told{err: err})
			return
		case cut:
			d.tell(told{err: ErrInjected})
			return
		case silence:
			return // nobody is told
		case reorder && held == nil:
			held = &event
			continue
		}
		events := []changefeed.Event{event}
		if held != nil {
			events, held = append(events, *held), nil
		}
		if repeat {
			events = append(events, event)
		}
		for _, e := range events {
			if !d.tell(told{event: e}) {
				return
			}
		}
	}
}

// fate is what happens to one event.
func (f *Faulty) fate() (lag time.Duration, cut, silence, repeat, reorder bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.faults
	return f.upTo(w.Lag), f.happens(w.FeedCut), f.happens(w.FeedSilence), f.happens(w.FeedRepeat), f.happens(w.FeedReorder)
}

// passes waits until the network is whole; false when the feed is closed.
func (d *feed) passes() bool {
	for {
		whole := d.f.severed()
		if whole == nil {
			return true
		}
		select {
		case <-whole:
		case <-d.ctx.Done():
			return false
		case <-d.f.dead:
			return false
		}
	}
}

func (d *feed) tell(t told) bool {
	select {
	case d.out <- t:
		return true
	case <-d.ctx.Done():
		return false
	case <-d.f.dead:
		return false
	}
}

// Next implements [changefeed.Feed].
func (d *feed) Next(ctx context.Context) (changefeed.Event, error) {
	if err := ctx.Err(); err != nil {
		return changefeed.Event{}, err
	}
	select {
	case t := <-d.out:
		return t.event, t.err
	case <-ctx.Done():
		return changefeed.Event{}, ctx.Err()
	case <-d.ctx.Done():
		return changefeed.Event{}, changefeed.ErrClosed
	case <-d.f.dead:
		return changefeed.Event{}, changefeed.ErrClosed
	}
}

// Close implements [changefeed.Feed].
func (d *feed) Close() error {
	d.once.Do(func() {
		d.cancel()
		d.err = d.inner.Close()
		<-d.done
	})
	return d.err
}
