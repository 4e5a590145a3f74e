package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// connect makes a connection of the store's own, as the pool makes its.
func (s *Store) connect(ctx context.Context) (*pgx.Conn, error) {
	config := s.pool.Config() // a copy
	conf := config.ConnConfig
	conf.OnNotification = nil // the caller's would take the notifications
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, conf); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, conf)
	if err != nil {
		return nil, err
	}
	if config.AfterConnect != nil {
		if err := config.AfterConnect(ctx, conn); err != nil {
			hangUp(conn)
			return nil, err
		}
	}
	return conn, nil
}

// hangUp closes a connection, in a second whatever the server does.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
	select { // the driver closes in the background what had failed before
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}

// listen has conn listen to a channel.
func listen(ctx context.Context, conn *pgx.Conn, channel string) error {
	_, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize())
	return err
}

// listener is the goroutine that owns a connection which listens.
type listener struct {
	store *Store
	conn  *pgx.Conn
	ctx   context.Context // done when the feed or the store is closed
	stop  context.CancelFunc
	done  chan struct{} // closed when the connection is closed, too

	notified func(ctx context.Context, n *pgconn.Notification) error
	silent   func(ctx context.Context) error // nothing was heard for the quiet time
	ended    func(err error)
}

// start runs l, whose conn listens already. It fails if the store is closed.
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
	l.ended(l.loop())
	hangUp(l.conn)
	l.stop()
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	delete(l.store.listeners, l)
}

func (l *listener) loop() error {
	for {
		ctx, cancel := context.WithTimeout(l.ctx, l.store.quiet)
		n, err := l.conn.WaitForNotification(ctx)
		cancel()
		what := "listen"
		switch {
		case err == nil:
			what = "take a notification"
			err = l.limited(func(ctx context.Context) error { return l.notified(ctx, n) })
		case l.ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !l.conn.IsClosed():
			what = "see whether the connection lives"
			err = l.limited(l.silent)
		}
		switch {
		case l.ctx.Err() != nil:
			return changefeed.ErrClosed
		case err != nil:
			return l.store.explain(context.Background(), fmt.Sprintf("feed of table %s: %s", l.store.name, what), err)
		}
	}
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
