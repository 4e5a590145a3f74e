package redis

import (
	"context"
	"errors"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/notice"
)

// feed tells of the newest state of the record. Its fields belong to the listener's
// goroutine but for the box.
type feed struct {
	*listener
	box  *notice.Box[changefeed.Event]
	last notice.Last
	up   chan struct{} // closed when the first event was told
}

// Subscribe implements [changefeed.Store]. It opens a connection, and returns when the
// server has confirmed the subscription and the record was read.
func (s *Store) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	f := &feed{box: notice.Newest[changefeed.Event](), up: make(chan struct{})}
	f.listener = &listener{
		store: s, channel: s.channel,
		subscribed: f.look, message: f.notice, silent: f.look, ended: f.box.End,
	}
	if err := f.open(ctx, f.up, f.box.Ended()); err != nil {
		return nil, err
	}
	if err := f.box.Err(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// open starts l and waits until it is up or has ended.
func (l *listener) open(ctx context.Context, up, ended <-chan struct{}) error {
	if l.store.closed.Err() != nil {
		return changefeed.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := l.start(); err != nil {
		return err
	}
	select {
	case <-up:
	case <-ended:
	case <-ctx.Done():
		l.stop() // the driver may take its time, and the store waits for it
		return l.store.explain(ctx, "subscribe for", ctx.Err())
	}
	return nil
}

// look reads the record. What is published afterwards is heard.
func (f *feed) look(ctx context.Context) error {
	r, err := f.store.Read(ctx)
	if err != nil && !errors.Is(err, changefeed.ErrNoRecord) {
		return err
	}
	if e := (changefeed.Event{Record: r, Missing: err != nil}); !f.last.Same(e) {
		f.tell(e)
	}
	return nil
}

// notice receives a message. Any client may have sent it, so it is delivered as a hint if it
// claims to be the leader's next heartbeat, and otherwise causes a read.
func (f *feed) notice(ctx context.Context, payload string) error {
	r, ok := notice.Decode(payload)
	if !ok || !f.last.Heartbeat(r) {
		return f.look(ctx)
	}
	f.tell(changefeed.Event{Record: r, Hint: true})
	return nil
}

func (f *feed) tell(e changefeed.Event) {
	if !f.last.Told() {
		defer close(f.up)
	}
	f.last.Set(e)
	f.box.Put(e)
}

// Next implements [changefeed.Feed].
func (f *feed) Next(ctx context.Context) (changefeed.Event, error) { return f.box.Next(ctx) }

// Close implements [changefeed.Feed].
func (f *feed) Close() error {
	f.box.End(changefeed.ErrClosed)
	f.close()
	return nil
}
