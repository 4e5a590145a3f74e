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
	errConnectionClosed = errors.New("the connection was closed and is not reopened")
	errUnresponsive     = errors.New("the connection does not answer")
)

// listen subscribes to a channel over a separate connection. It calls subscribed when the server
// confirms the subscription, and handle for each message, until ctx is done or the connection
// fails.
func (s *Store) listen(ctx context.Context, channel string, subscribed func(), handle func(payload string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wrapError := func(operation string, err error) error {
		return s.runner.WrapError(ctx, fmt.Sprintf("%s channel %q of", operation, channel), err)
	}
	client, err := s.newConnection(ctx)
	if err != nil {
		return wrapError("find the server of", err)
	}
	sub := client.Subscribe(ctx) // Subscribe without a channel does not connect yet.
	unblock := context.AfterFunc(ctx, func() { _ = sub.Close() })
	results := make(chan receiveResult)
	received := make(chan struct{}) // closed when receiveMessages has returned
	defer s.runner.Release(func() {
		if unblock() {
			_ = sub.Close()
		}
		<-received
		_ = client.Close()
	})
	if err := sub.Subscribe(ctx, channel); err != nil {
		close(received)
		return wrapError("subscribe to", err)
	}
	go func() {
		defer close(received)
		receiveMessages(ctx, sub, results)
	}()
	timer := time.NewTimer(s.quiet)
	defer timer.Stop()
	pinged := false // pinged means that nothing was received since the last PING.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-results:
			if r.err != nil {
				return wrapError("listen to", r.err)
			}
			pinged = false
			switch m := r.message.(type) {
			case *redis.Subscription:
				subscribed()
			case *redis.Message:
				handle(m.Payload)
			}
		case <-timer.C:
			if pinged {
				return wrapError("listen to", errUnresponsive)
			}
			pinged = true
			if err := sub.Ping(ctx); err != nil {
				return wrapError("listen to", err)
			}
		}
		timer.Reset(s.quiet)
	}
}

// receiveResult contains a message of the server, or the error that ends the connection.
type receiveResult struct {
	message any
	err     error
}

// receiveMessages receives messages until the connection ends. It waits without a time limit, which could expire in
// the middle of a message and leave the connection unusable.
func receiveMessages(ctx context.Context, sub *redis.PubSub, results chan<- receiveResult) {
	for {
		message, err := sub.Receive(ctx)
		select {
		case results <- receiveResult{message, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// newConnection returns a client for a single connection, with the options of the caller's client. The caller's client
// itself is not used, because it would reconnect silently before it reports that the connection was lost.
func (s *Store) newConnection(ctx context.Context) (*redis.Client, error) {
	server, err := s.serverOfKey(ctx)
	if err != nil {
		return nil, err
	}
	opt := *server.Options()
	dial := opt.Dialer
	var dialed atomic.Bool
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dialed.Swap(true) {
			return nil, errConnectionClosed
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
