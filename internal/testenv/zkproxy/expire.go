package zkproxy

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// expireTimeout is the time limit of ExpireSession.
const expireTimeout = 10 * time.Second

var (
	// ErrUnknownSession is the error for a session that no connection through the proxy has used.
	ErrUnknownSession = errors.New("zkproxy: unknown session")
	// ErrSessionGone is the error for a session that does not exist any more.
	ErrSessionGone = errors.New("zkproxy: session does not exist any more")
)

// addSession stores the credentials with which ExpireSession can resume a session.
func (p *Proxy) addSession(session int64, c credentials) {
	if session == 0 {
		return // the server has not continued the session, so the credentials are invalid
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions[session] = c
}

// ExpireSession closes a session on the server, which has the same effect as its expiry: when ExpireSession
// returns, the servers have deleted the ephemeral znodes, and the server reports the expiry to the client when the
// client connects again. Faults of the proxy have no effect on ExpireSession. ExpireSession blocks for at most 10
// seconds.
func (p *Proxy) ExpireSession(session int64) error {
	p.mu.Lock()
	c, ok := p.sessions[session]
	target := p.target
	p.mu.Unlock()
	if !ok {
		return fmt.Errorf("%w %#x", ErrUnknownSession, uint64(session))
	}
	// When closeSession resumes the session, the server closes the connection of the client. If the client
	// reconnects before closeSession has closed the session, the server closes the connection of closeSession. So
	// several attempts may be necessary.
	end := time.Now().Add(expireTimeout)
	for attempt := 1; ; attempt++ {
		err := closeSession(target, session, c, end)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrSessionGone) && attempt > 1:
			return nil // the previous attempt has closed the session
		case errors.Is(err, ErrSessionGone):
			return fmt.Errorf("%w: %#x", err, uint64(session))
		case time.Now().After(end):
			return fmt.Errorf("zkproxy: expire session %#x: %w", uint64(session), err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// closeSession resumes a session on a new connection, and closes the session. It returns an error if it has not
// done so at the time end.
func closeSession(target string, session int64, c credentials, end time.Time) error {
	conn, err := net.DialTimeout("tcp", target, time.Until(end))
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(end)

	// Send both requests together, so that the client has little time to reconnect in between.
	var e wire.Encoder
	start := e.Begin()
	e.ConnectRequest(&wire.ConnectRequest{Timeout: c.timeout, Session: session, Password: c.password})
	e.End(start)
	start = e.Begin()
	e.Header(wire.Header{Xid: 1, Op: wire.CloseSession})
	e.End(start)
	if _, err := conn.Write(e.B); err != nil {
		return err
	}
	reply, err := readFrame(conn, nil)
	if err != nil {
		return err
	}
	resumed, ok := parseReply(reply[lengthSize:], true)
	if !ok {
		return errors.New("resume session: malformed reply to the handshake")
	}
	if resumed.session != session {
		return ErrSessionGone
	}
	reply, err = readFrame(conn, nil)
	if err != nil {
		return err
	}
	closed, ok := parseReply(reply[lengthSize:], false)
	if !ok || closed.err != 0 {
		return fmt.Errorf("close session: the server has returned error %d", closed.err)
	}
	return nil
}
