package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// connect opens a connection of the store, in the way in which the pool opens its connections.
func (s *Store) connect(ctx context.Context) (*pgx.Conn, error) {
	config := s.pool.Config() // a copy
	conf := config.ConnConfig
	conf.OnNotification = nil // a handler of the caller would consume the notifications
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

// hangUp closes a connection, within a second even if the server does not answer.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
	select { // the driver closes in the background what had failed before
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}

// listen makes conn listen to a channel.
func listen(ctx context.Context, conn *pgx.Conn, channel string) error {
	_, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize())
	return err
}

// receive calls notified for each notification until ctx is done or the connection fails. If there
// is none within the quiet time, it calls silent, which must send a request over the connection.
func (s *Store) receive(ctx context.Context, conn *pgx.Conn, silent func(ctx context.Context) error, notified func(n *pgconn.Notification)) error {
	for {
		limited, cancel := context.WithTimeout(ctx, s.quiet)
		n, err := conn.WaitForNotification(limited)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			notified(n)
			continue
		case !errors.Is(err, context.DeadlineExceeded) || conn.IsClosed():
			return err
		}
		limited, cancel = context.WithTimeout(ctx, s.quiet)
		err = silent(limited)
		cancel()
		if err != nil {
			return err
		}
	}
}
