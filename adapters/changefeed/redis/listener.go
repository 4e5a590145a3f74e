package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

var (
	errOver   = errors.New("the connection was closed and is not reopened")
	errSilent = errors.New("the connection does not answer")
)

// listener is the goroutine that owns a subscription to one channel, and its connection.
type listener struct {
	store   *Store
	channel string
	ctx     context.Context // done when the feed or the store is closed
	stop    context.CancelFunc
	done    chan struct{} // closed when the connection is closed, too

	subscribed func(ctx context.Context) error
	message    func(ctx context.Context, payload string) error
	silent     func(ctx context.Context) error // nothing was heard for the quiet time
	ended      func(err error)
}

// start runs l. It fails if the store is closed.
func (l *listener) start() error {
	s := l.store
	l.ctx, l.stop = context.WithCancel(s.closed)
	l.done = make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Err() != nil {
		l.stop()
		return changefeed.ErrClosed
	}
	s.listeners[l] = struct{}{}
	go l.run()
	return nil
}

func (l *listener) run() {
	defer close(l.done)
	defer func() {
		l.stop()
		l.store.mu.Lock()
		defer l.store.mu.Unlock()
		delete(l.store.listeners, l)
	}()
	client, err := l.client()
	if err != nil {
		l.end("find the server of", err)
		return
	}
	defer client.Close()
	sub := client.Subscribe(l.ctx) // to nothing yet, and without a connection
	unblock := context.AfterFunc(l.ctx, func() { _ = sub.Close() })
	defer func() {
		if unblock() {
			_ = sub.Close()
		}
	}()
	if err := sub.Subscribe(l.ctx, l.channel); err != nil {
		l.end("subscribe to", err)
		return
	}
	received := make(chan answer)
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		l.receive(sub, received)
	}()
	l.end("listen to", l.loop(sub, received))
	l.stop()
	<-reading
}

func (l *listener) end(what string, err error) {
	if l.ctx.Err() != nil {
		err = changefeed.ErrClosed
	}
	l.ended(l.store.explain(context.Background(), fmt.Sprintf("%s channel %q of", what, l.channel), err))
}

// answer is what the server has sent, or why it sends no more.
type answer struct {
	message any
	err     error
}

// receive reads until the connection ends. It has no time limit, which could fall into
// the middle of a message.
func (l *listener) receive(sub *redis.PubSub, to chan<- answer) {
	for {
		message, err := sub.Receive(l.ctx)
		select {
		case to <- answer{message, err}:
		case <-l.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (l *listener) loop(sub *redis.PubSub, received <-chan answer) error {
	quiet := l.store.quiet
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	asked := false // since anything was heard
	for {
		var err error
		select {
		case <-l.ctx.Done():
			return changefeed.ErrClosed
		case a := <-received:
			if a.err != nil {
				return a.err
			}
			asked = false
			err = l.limited(func(ctx context.Context) error { return l.take(ctx, a.message) })
		case <-timer.C:
			if asked {
				return errSilent
			}
			asked = true
			if err = sub.Ping(l.ctx); err == nil {
				err = l.limited(l.silent)
			}
		}
		if err != nil {
			return err
		}
		timer.Reset(quiet)
	}
}

func (l *listener) take(ctx context.Context, message any) error {
	switch m := message.(type) {
	case *redis.Subscription:
		return l.subscribed(ctx)
	case *redis.Message:
		return l.message(ctx, m.Payload)
	}
	return nil // a pong
}

// limited calls f, which asks the server and must have its answer soon.
func (l *listener) limited(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(l.ctx, l.store.quiet)
	defer cancel()
	return f(ctx)
}

// close ends l and waits for it as long as Close may take.
func (l *listener) close() {
	l.stop()
	limit := time.NewTimer(closeTime)
	defer limit.Stop()
	select {
	case <-l.done:
	case <-limit.C:
	}
}

// client makes one for a single connection, by the options of the caller's. The driver
// would connect again by itself, silently and before it tells of the loss.
func (l *listener) client() (*redis.Client, error) {
	node, err := l.store.node(l.ctx)
	if err != nil {
		return nil, err
	}
	opt := *node.Options()
	dial := opt.Dialer
	var dialed atomic.Bool
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dialed.Swap(true) {
			return nil, errOver
		}
		return dial(ctx, network, addr)
	}
	opt.DialerRetries, opt.MaxRetries = 1, -1
	opt.ContextTimeoutEnabled = true
	opt.PoolSize, opt.MinIdleConns, opt.MaxIdleConns, opt.PipelinePoolSize = 1, 0, 0, -1
	opt.PushNotificationProcessor, opt.AutoPipelineOptions = nil, nil
	opt.ClientSideCache, opt.ClientSideCacheConfig = nil, nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(&opt), nil
}
