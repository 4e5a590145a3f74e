package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// sessions contains the open sessions of a contestant in this process, by number.
type sessions struct {
	addrs   []string // the addresses of the servers; session i is at server i modulo their number
	timeout time.Duration

	mu    sync.Mutex
	conns map[int]*zk.Conn
}

type discardLogger struct{}

func (discardLogger) Printf(string, ...any) {}

// dial opens a session and waits until it is usable.
func dial(addr string, timeout time.Duration) (*zk.Conn, error) {
	conn, events, err := zk.Connect([]string{addr}, timeout, zk.WithLogger(discardLogger{}))
	if err != nil {
		return nil, err
	}
	limit := time.NewTimer(sessionTimeout)
	defer limit.Stop()
	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				return conn, nil
			}
		case <-limit.C:
			conn.Close()
			return nil, fmt.Errorf("no session at %s within %v", addr, sessionTimeout)
		}
	}
}

func (s *sessions) connect(session int) error {
	conn, err := dial(s.addrs[session%len(s.addrs)], s.timeout)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[session] = conn
	return nil
}

// conn returns the connection of a session, or nil if the session does not exist.
func (s *sessions) conn(session int) *zk.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[session]
}

func (s *sessions) disconnect(session int) (int64, error) {
	s.mu.Lock()
	conn := s.conns[session]
	delete(s.conns, session)
	s.mu.Unlock()
	if conn == nil {
		return 0, fmt.Errorf("session %d does not exist", session)
	}
	at := now()
	conn.Close()
	return at, nil
}

func (s *sessions) disconnectAll() {
	s.mu.Lock()
	conns := s.conns
	s.conns = map[int]*zk.Conn{}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, conn := range conns {
		wg.Go(conn.Close)
	}
	wg.Wait()
}

// isClosed reports whether err means that the session was closed.
func isClosed(err error) bool {
	return errors.Is(err, zk.ErrClosing) || errors.Is(err, zk.ErrConnectionClosed)
}
