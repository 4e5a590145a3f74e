package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"
)

// reservedConnections is the maximum number of connections for the requests of all stores on one
// pool.
const reservedConnections = 4

// shared is what the stores on one pool share: the listener, and connections for requests, which the queries of the
// program cannot occupy.
type shared struct {
	shareKey
	listener *listener
	cancel   context.CancelCauseFunc // cancel ends the listener.
	ended    sync.Once               // ended makes endListener act only once.
	users    int                     // users is the number of open stores. The registry's mu protects it.

	mu       sync.Mutex
	reserved *pgxpool.Pool // reserved is the pool for requests. The first request opens it.
	closed   bool
}

// shareKey identifies a shared: stores with the same key share it.
type shareKey struct {
	pool   *pgxpool.Pool // pool is the pool of the program.
	polled bool          // polled means that a connection pooler may share the sessions (WithPoll).
}

// registry contains the shared of each pool that has open stores.
var registry = struct {
	sync.Mutex
	pools map[shareKey]*shared
}{pools: map[shareKey]*shared{}}

// share returns the connections and the listener that the stores on a pool share. Polled stores
// share nothing with stores that are not polled. The caller must call release when it closes the
// store.
func share(pool *pgxpool.Pool, polled bool) *shared {
	registry.Lock()
	defer registry.Unlock()
	key := shareKey{pool, polled}
	s := registry.pools[key]
	if s == nil {
		s = &shared{shareKey: key}
		s.listener = &listener{connect: s.connect, check: s.closedError, channels: map[string]map[*subscription]bool{}}
		s.listener.ctx, s.cancel = context.WithCancelCause(context.Background())
		registry.pools[key] = s
	}
	s.users++
	return s
}

// connectLimit is how long connecting to one address of the server may take. The driver's default is
// two minutes: for that time, attempts to connect to an unreachable server would occupy the reserved
// connections.
const connectLimit = 10 * time.Second

// limitConnecting reduces the time limit of the driver to connectLimit.
func limitConnecting(conf *pgx.ConnConfig) {
	if conf.ConnectTimeout <= 0 || conf.ConnectTimeout > connectLimit {
		conf.ConnectTimeout = connectLimit
	}
}

// releaseLimit is how long release waits for the server.
const releaseLimit = 400 * time.Millisecond

// release is called when a store is closed. For the last store on a pool, it closes the
// connections that the stores share, and waits for that, at most for releaseLimit.
func (s *shared) release() {
	registry.Lock()
	s.users--
	last := s.users == 0
	if last {
		s.unregister()
	}
	registry.Unlock()
	if !last {
		return
	}
	s.endListener(nil)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.listener.running.Wait()
	}()
	timer := time.NewTimer(releaseLimit)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
}

// unregister removes s from the registry, so that the next store on the pool shares other connections. The caller must
// hold the registry's mu.
func (s *shared) unregister() {
	if registry.pools[s.shareKey] == s {
		delete(registry.pools, s.shareKey)
	}
}

// endListener ends the listener with err, and closes the shared connections in the background.
func (s *shared) endListener(err error) {
	s.ended.Do(func() {
		s.cancel(err)
		s.listener.running.Go(s.closeReserved)
	})
}

// closeReserved closes the reserved pool, if it was opened, and prevents it from being opened later.
func (s *shared) closeReserved() {
	s.mu.Lock()
	reserved := s.reserved
	s.closed = true
	s.mu.Unlock()
	if reserved != nil {
		reserved.Close()
	}
}

// probeLimit is how long closedError waits for a connection of the program's pool to find out whether the pool is
// closed. A closed pool returns its error at once.
const probeLimit = 50 * time.Millisecond

// closedError returns the error of the program's pool if the pool is closed, and then also closes the connections of
// the stores, although the program has not closed the stores. It ignores any other error of the pool, because the
// connections of the stores may work nevertheless.
func (s *shared) closedError(ctx context.Context) error {
	if s.pool.Stat().TotalConns() > 0 { // The pool is open, because a closed pool has no connections.
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	switch {
	case err == nil:
		conn.Release()
	case errors.Is(err, puddle.ErrClosedPool):
		registry.Lock()
		s.unregister()
		registry.Unlock()
		s.endListener(err)
		return err
	}
	return nil
}

// poolForRequests returns the pool for the requests of stores. It is not the pool of the program, whose queries could
// occupy all connections for longer than a lease. If the program has closed its pool, the error is that of the closed
// pool.
func (s *shared) poolForRequests(ctx context.Context) (*pgxpool.Pool, error) {
	if err := s.closedError(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reserved != nil {
		return s.reserved, nil
	}
	if s.closed {
		return nil, context.Canceled // The store is closed.
	}
	config := s.pool.Config() // Config returns a copy
	config.MaxConns, config.MinConns, config.MinIdleConns = reservedConnections, 0, 0
	config.AfterConnect = s.afterConnect
	limitConnecting(config.ConnConfig)
	if s.polled {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	reserved, err := pgxpool.NewWithConfig(context.Background(), config)
	s.reserved = reserved
	return reserved, err
}

// connect opens a connection outside of the pool, in the same way as the pool does.
func (s *shared) connect(ctx context.Context) (*pgx.Conn, error) {
	config := s.pool.Config() // Config returns a copy
	conf := config.ConnConfig
	conf.OnNotification = nil // The caller's handler would consume the notifications.
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, conf); err != nil {
			return nil, err
		}
	}
	limitConnecting(conf)
	conn, err := pgx.ConnectConfig(ctx, conf)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	if err := s.afterConnect(ctx, conn); err != nil {
		closeConnection(conn)
		return nil, err
	}
	return conn, nil
}

// afterConnect calls the pool's AfterConnect, and disables the limit of idle sessions, which exists since PostgreSQL
// 14: with this limit, the server would end the session of a listener, or of a leader whose heartbeats are less
// frequent. It also limits the wait for the lock of a table that the server needs to plan a statement, which happens
// before the transaction of the request sets its own limit.
func (s *shared) afterConnect(ctx context.Context, conn *pgx.Conn) error {
	if after := s.pool.Config().AfterConnect; after != nil {
		if err := after(ctx, conn); err != nil {
			return err
		}
	}
	if s.polled { // Change no setting, because other clients of the pooler would get the session.
		return nil
	}
	_, err := conn.Exec(ctx, `SELECT set_config(name, CASE name WHEN 'lock_timeout' THEN $1::text ELSE '0' END, false)
FROM pg_settings WHERE name IN ('idle_session_timeout', 'lock_timeout')`, formatMillis(maxLockLimit))
	return err
}
