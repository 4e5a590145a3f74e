package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// connect opens a separate connection in the same way as the pool.
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
			closeConnection(conn)
			return nil, err
		}
	}
	return conn, nil
}

// closeConnection closes a connection, within a second even if the server does not answer.
func closeConnection(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
	select { // The driver closes a failed connection in the background.
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}

// listen makes conn listen to a channel.
func listen(ctx context.Context, conn *pgx.Conn, channel string) error {
	_, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize())
	return err
}

// receiveNotifications calls handle for each notification until ctx is done or the connection
// fails. If there is none within the quiet time, it calls check, which must send a request over
// the connection.
func (s *Store) receiveNotifications(ctx context.Context, conn *pgx.Conn, check func(ctx context.Context) error, handle func(n *pgconn.Notification)) error {
	for {
		limited, cancel := context.WithTimeout(ctx, s.quiet)
		n, err := conn.WaitForNotification(limited)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			handle(n)
			continue
		case !errors.Is(err, context.DeadlineExceeded) || conn.IsClosed():
			return err
		}
		limited, cancel = context.WithTimeout(ctx, s.quiet)
		err = check(limited)
		cancel()
		if err != nil {
			return err
		}
	}
}
