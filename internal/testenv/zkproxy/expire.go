package zkproxy

// Sessions that the server ends while their client still counts on them.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

// expireTimeout bounds ExpireSession.
const expireTimeout = 10 * time.Second

var (
	// ErrUnknownSession means that no connection through this proxy has had
	// the session.
	ErrUnknownSession = errors.New("zkproxy: unknown session")
	// ErrSessionGone means that the server had ended the session before.
	ErrSessionGone = errors.New("zkproxy: session already gone")
)

// remember keeps what it takes to resume a session.
func (p *Proxy) remember(session int64, c credentials) {
	if session == 0 {
		return // the server has refused to resume a session
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions[session] = c
}

// ExpireSession ends a session on the server, as if it had expired: its
// ephemeral nodes are gone when ExpireSession returns, and its client is told
// on its next connection. It goes past the faults of the proxy, straight to
// the target. It blocks for at most 10 seconds.
func (p *Proxy) ExpireSession(session int64) error {
	p.mu.Lock()
	c, ok := p.sessions[session]
	target := p.target
	p.mu.Unlock()
	if !ok {
		return fmt.Errorf("%w %#x", ErrUnknownSession, uint64(session))
	}
	// The server drops the client's connection for ours, and ours again should
	// the client return before the session is closed. So it may take more than
	// one attempt.
	end := time.Now().Add(expireTimeout)
	for attempt := 1; ; attempt++ {
		err := closeSession(target, session, c, end)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrSessionGone) && attempt > 1:
			return nil // the attempt before had worked
		case errors.Is(err, ErrSessionGone):
			return fmt.Errorf("%w: %#x", err, uint64(session))
		case time.Now().After(end):
			return fmt.Errorf("zkproxy: expire session %#x: %w", uint64(session), err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// closeSession takes over a session and closes it.
func closeSession(target string, session int64, c credentials, end time.Time) error {
	conn, err := net.DialTimeout("tcp", target, time.Until(end))
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(end)

	// Both at once: the less time the client has to return in between.
	_, err = conn.Write(append(resumeFrame(session, c), closeFrame()...))
	if err != nil {
		return err
	}
	answer, err := readFrame(conn, nil)
	if err != nil {
		return err
	}
	resumed, ok := parseReply(answer[lengthSize:], true)
	if !ok {
		return errors.New("answer to a handshake that makes no sense")
	}
	if resumed.session != session {
		return ErrSessionGone
	}
	answer, err = readFrame(conn, nil)
	if err != nil {
		return err
	}
	closed, ok := parseReply(answer[lengthSize:], false)
	if !ok || closed.err != 0 {
		return fmt.Errorf("close session: error %d", closed.err)
	}
	return nil
}

// resumeFrame is a handshake that resumes a session.
func resumeFrame(session int64, c credentials) []byte {
	return encode(int32(0), int64(0), c.timeout, session, int32(len(c.password)), c.password)
}

func closeFrame() []byte { return encode(int32(1), OpCloseSession) }

// encode puts values into a frame.
func encode(values ...any) []byte {
	var body bytes.Buffer
	for _, v := range values {
		binary.Write(&body, binary.BigEndian, v) // cannot fail on a Buffer and these types
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(body.Len())), body.Bytes()...)
}
