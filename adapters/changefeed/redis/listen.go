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
)

var (
	errOver   = errors.New("the connection was closed and is not reopened")
	errSilent = errors.New("the connection does not answer")
)

// listen subscribes to a channel over a separate connection. It calls subscribed when the server
// has confirmed that, and received for each message, until ctx is done or the connection fails.
func (s *Store) listen(ctx context.Context, channel string, subscribed func(), received func(payload string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	explain := func(what string, err error) error {
		return s.explain(ctx, fmt.Sprintf("%s channel %q of", what, channel), err)
	}
	client, err := s.single(ctx)
	if err != nil {
		return explain("find the server of", err)
	}
	sub := client.Subscribe(ctx) // It has neither a channel nor a connection yet.
	unblock := context.AfterFunc(ctx, func() { _ = sub.Close() })
	answers := make(chan answer)
	reading := make(chan struct{})
	defer s.feeds.Release(func() {
		if unblock() {
			_ = sub.Close()
		}
		<-reading
		_ = client.Close()
	})
	if err := sub.Subscribe(ctx, channel); err != nil {
		close(reading)
		return explain("subscribe to", err)
	}
	go func() {
		defer close(reading)
		receive(ctx, sub, answers)
	}()
	timer := time.NewTimer(s.quiet)
	defer timer.Stop()
	pinged := false // pinged reports whether there was no answer since the last ping.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-answers:
			if a.err != nil {
				return explain("listen to", a.err)
			}
			pinged = false
			switch m := a.message.(type) {
			case *redis.Subscription:
				subscribed()
			case *redis.Message:
				received(m.Payload)
			}
		case <-timer.C:
			if pinged {
				return explain("listen to", errSilent)
			}
			pinged = true
			if err := sub.Ping(ctx); err != nil {
				return explain("listen to", err)
			}
		}
		timer.Reset(s.quiet)
	}
}

// answer is a message of the server, or the error that ends the connection.
type answer struct {
	message any
	err     error
}

// receive receives messages until the connection ends. It has no time limit, which could expire in
// the middle of a message.
func receive(ctx context.Context, sub *redis.PubSub, to chan<- answer) {
	for {
		message, err := sub.Receive(ctx)
		select {
		case to <- answer{message, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// single returns a client for a single connection, with the options of the caller's client. The
// driver would otherwise reconnect silently before it reports the loss of the connection.
func (s *Store) single(ctx context.Context) (*redis.Client, error) {
	node, err := s.node(ctx)
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
