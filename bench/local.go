package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// sessions are the open sessions of a contestant in Go, by number.
type sessions struct {
	addr string

	mu    sync.Mutex
	conns map[int]*zk.Conn
}

func newSessions(addr string) sessions {
	return sessions{addr: addr, conns: map[int]*zk.Conn{}}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// dial opens a session and waits until it is usable.
func dial(addr string) (*zk.Conn, error) {
	conn, events, err := zk.Connect([]string{addr}, sessionTimeout, zk.WithLogger(silent{}))
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
	conn, err := dial(s.addr)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[session] = conn
	return nil
}

// conn is nil when there is no such session.
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
		return 0, fmt.Errorf("no session %d", session)
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

// cutShort reports whether err only says that the session was closed.
func cutShort(err error) bool {
	return errors.Is(err, zk.ErrClosing) || errors.Is(err, zk.ErrConnectionClosed)
}

// waitAll waits for goroutines whose sessions are closed.
func waitAll(wg *sync.WaitGroup, patience time.Duration) error {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-done:
		return nil
	case <-limit.C:
		return errors.New("candidates go on after their sessions were closed")
	}
}

// brokenClose is how long to wait for goroutines that only a watch tells of
// the end of their session. Requests under way during a Close can block the
// client (flushRequests, for ever), which then never tells its watches: those
// who wait for them are given up.
const brokenClose = 3 * time.Second
