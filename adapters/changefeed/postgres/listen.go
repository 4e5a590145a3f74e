package postgres

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// checkInterval is how often a listener sends a request over its connection, to check it, and how long such a request
// may take.
const checkInterval = 2 * time.Second

// maxUnread is the number of notifications that a subscription keeps for its reader.
const maxUnread = 1000

// errSlowReader is the error of a subscription whose reader is more than maxUnread notifications
// behind.
var errSlowReader = errors.New("too many unread notifications")

// listener listens to the channels of all stores on one pool, over one connection. It opens the connection for the
// first subscription, and closes it when there has been no subscription for a checkInterval. The next subscription
// opens it again, also if it has failed.
type listener struct {
	connect func(ctx context.Context) (*pgx.Conn, error)
	check   func(ctx context.Context) error // check returns an error if the program's pool is closed.
	ctx     context.Context                 // ctx is done when the listener must end.
	running sync.WaitGroup

	mu        sync.Mutex
	active    bool                              // active reports whether run is running.
	channels  map[string]map[*subscription]bool // channels contains the subscriptions by channel.
	requested []string                          // requested are the channels to which run must begin or cease to listen.
	interrupt context.CancelFunc                // interrupt ends the wait for a notification.
}

// subscription is the subscription of a feed to a channel.
type subscription struct {
	channel       string
	established   chan struct{} // established is closed when the server has confirmed the subscription.
	notifications chan *pgconn.Notification
	ended         chan struct{} // ended is closed after err was set.
	err           error
}

// subscribe requests a subscription to a channel. It does not wait until the server has confirmed the
// subscription.
func (l *listener) subscribe(channel string) *subscription {
	s := &subscription{
		channel: channel, established: make(chan struct{}),
		notifications: make(chan *pgconn.Notification, maxUnread), ended: make(chan struct{}),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		s.endSubscription(context.Cause(l.ctx))
		return s
	}
	if l.channels[channel] == nil {
		l.channels[channel] = map[*subscription]bool{}
	}
	l.channels[channel][s] = true
	l.requestListen(channel)
	if !l.active {
		l.active = true
		l.running.Go(l.run)
	}
	return s
}

// waitEstablished waits until the server has confirmed a subscription, the subscription has ended, or
// ctx is done.
func (s *subscription) waitEstablished(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ended:
		return s.err
	case <-s.established:
		return nil
	}
}

// unsubscribe ends a subscription. The reader must not use the subscription any more.
func (l *listener) unsubscribe(s *subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(s)
}

// remove removes a subscription if it has not been removed before. The caller must hold mu.
func (l *listener) remove(s *subscription) {
	if !l.channels[s.channel][s] {
		return
	}
	delete(l.channels[s.channel], s)
	if len(l.channels[s.channel]) == 0 {
		delete(l.channels, s.channel)
	}
	l.requestListen(s.channel)
}

// requestListen makes run listen to channel if the channel has subscriptions, and cease to listen to it if it has
// none. The caller must hold mu.
func (l *listener) requestListen(channel string) {
	l.requested = append(l.requested, channel)
	if l.interrupt != nil {
		l.interrupt()
	}
}

// endSubscription ends a subscription because of err. The caller must hold the listener's mu.
func (s *subscription) endSubscription(err error) {
	s.err = err
	close(s.ended)
}

// run opens the connection, and receives notifications until the connection fails or is not needed any
// more.
func (l *listener) run() {
	conn, err := l.connect(l.ctx)
	if err == nil {
		err = l.receive(conn)
	}
	if err != nil {
		l.mu.Lock()
		if l.ctx.Err() != nil {
			err = context.Cause(l.ctx)
		}
		l.stop(err)
		l.mu.Unlock()
	}
	if conn != nil {
		closeConnection(conn)
	}
}

// stop ends all subscriptions because of err. The next subscription starts run again. The caller must
// hold mu.
func (l *listener) stop(err error) {
	for channel := range l.channels {
		l.endChannel(channel, err)
	}
	l.requested, l.interrupt, l.active = nil, nil, false
}

// receive delivers notifications, and listens to the channels that are requested, until the connection fails or the
// pool is closed. If there has been no subscription for a checkInterval, it calls stop and returns nil. It sends a
// request in each checkInterval, whatever it receives. So it detects a server that does not respond, and the
// server does not end the session because it is idle.
func (l *listener) receive(conn *pgx.Conn) error {
	checkAt := time.Now().Add(checkInterval)
	for {
		due := time.Now().After(checkAt)
		if due {
			if err := l.check(l.ctx); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithDeadline(l.ctx, checkAt)
		l.mu.Lock()
		requested := l.requested
		l.requested, l.interrupt = nil, cancel
		unused := due && len(requested) == 0 && len(l.channels) == 0
		if unused {
			l.stop(nil)
		}
		l.mu.Unlock()
		var err error
		switch {
		case unused:
			cancel()
			return nil
		case len(requested) > 0 || due:
			cancel()
			checkAt = time.Now().Add(checkInterval)
			err = l.listen(conn, requested)
		default:
			err = l.receiveNotification(ctx, conn)
			cancel()
		}
		if err != nil {
			return err
		}
	}
}

// receiveNotification waits for a notification until ctx is done, and delivers it.
func (l *listener) receiveNotification(ctx context.Context, conn *pgx.Conn) error {
	n, err := conn.WaitForNotification(ctx)
	switch {
	case l.ctx.Err() != nil:
		return l.ctx.Err()
	case err != nil && (ctx.Err() == nil || conn.IsClosed()):
		return err
	case err != nil:
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.channels[n.Channel] {
		select {
		case s.notifications <- n:
		default:
			l.remove(s)
			s.endSubscription(errSlowReader)
		}
	}
	return nil
}

// listen makes the connection listen to those of the channels that have subscriptions, and cease to listen to the
// others. Without channels it only sends a request. If the server rejects the request, listen sends one for each
// channel: a name that the server cannot represent then ends only its own subscriptions.
func (l *listener) listen(conn *pgx.Conn, channels []string) error {
	err := l.listenToAll(conn, channels)
	var rejected *pgconn.PgError
	if len(channels) == 0 || !errors.As(err, &rejected) || conn.IsClosed() {
		return err
	}
	for _, channel := range channels {
		err := l.listenToAll(conn, []string{channel})
		switch {
		case err == nil:
		case !errors.As(err, &rejected) || conn.IsClosed():
			return err
		default:
			l.mu.Lock()
			l.endChannel(channel, err)
			l.mu.Unlock()
		}
	}
	return nil
}

// endChannel ends the subscriptions to a channel because of err. The caller must hold mu.
func (l *listener) endChannel(channel string, err error) {
	for s := range l.channels[channel] {
		s.endSubscription(err)
	}
	delete(l.channels, channel)
}

// listenToAll makes the connection, by one request, listen to those of the channels that have subscriptions, and
// cease to listen to the others.
func (l *listener) listenToAll(conn *pgx.Conn, channels []string) error {
	ctx, cancel := context.WithTimeout(l.ctx, checkInterval)
	defer cancel()
	var sql strings.Builder
	var confirmed []*subscription
	l.mu.Lock()
	for _, channel := range channels {
		command := "UNLISTEN "
		for s := range l.channels[channel] {
			command = "LISTEN "
			confirmed = append(confirmed, s)
		}
		sql.WriteString(command + pgx.Identifier{channel}.Sanitize() + ";")
	}
	l.mu.Unlock()
	if err := conn.PgConn().Exec(ctx, sql.String()).Close(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range confirmed {
		select {
		case <-s.established:
		default:
			close(s.established)
		}
	}
	return nil
}

// receiveNotifications subscribes to a channel and calls established. Then it calls handle for each notification,
// until ctx is done or the connection fails. It calls check whenever no notification has arrived for the quiet time.
func (s *Store) receiveNotifications(ctx context.Context, channel string, established func(), check func(ctx context.Context) error, handle func(n *pgconn.Notification)) error {
	sub := s.shared.listener.subscribe(channel)
	defer s.shared.listener.unsubscribe(sub)
	if err := sub.waitEstablished(ctx); err != nil {
		return err
	}
	established()
	timer := time.NewTimer(s.quiet)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-sub.ended:
			return sub.err
		case n := <-sub.notifications:
			handle(n)
		case <-timer.C:
			limited, cancel := context.WithTimeout(ctx, s.quiet)
			err := check(limited)
			cancel()
			if err != nil {
				return err
			}
		}
		timer.Reset(s.quiet)
	}
}

// closeConnection closes a connection, within a second even if the server does not answer.
func closeConnection(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
	select { // Wait until the driver has closed a failed connection in the background.
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}
