package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

const (
	// handshakeTime is how long a handshake may take, whatever the context allows.
	handshakeTime = 5 * time.Second
	// lingerTime is for how long a connection that was refused stays open, so that the
	// other side can read why.
	lingerTime = time.Second
)

var errSlow = fmt.Errorf("the handshake did not complete within %v", handshakeTime)

// Dial makes conn, which the caller has dialed, a connection to the peer wantID, or to any
// if that is empty. It waits for the other side until ctx ends, and for five seconds at the
// most. Errors wrap api.ErrRefused if one side does not accept the other, with a RefusedError
// that says why, and api.ErrInvalid if self cannot work. With an error conn is closed.
func Dial(ctx context.Context, conn net.Conn, self Identity, wantID string, purpose Purpose) (*Conn, error) {
	err := self.validateDial()
	switch {
	case err != nil:
	case len(wantID) > maxText:
		err = invalid("the requested ID has %d bytes, the limit is %d", len(wantID), maxText)
	case !purpose.isKnown():
		err = invalid("unknown purpose %v", purpose)
	case !purpose.ForClients() && !self.Peer:
		err = invalid("connections for %v are reserved for peers", purpose)
	}
	var c *Conn
	if err == nil {
		err = within(ctx, conn, func() (err error) {
			c, err = dial(conn, self, wantID, purpose)
			return err
		})
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("raftlog: connect to peer %q at %v: %w", wantID, conn.RemoteAddr(), err)
	}
	return c, nil
}

// Accept finds out who is at the other end of conn, which the caller has accepted, as Dial
// does. The other side, if it is one of the cluster, then has to please every one of
// accepts: their errors refuse it, for the reason of a RefusedError among them, and their
// text is told to it. They are called on this goroutine, within the five seconds.
func Accept(ctx context.Context, conn net.Conn, self Identity, accepts ...func(Hello) error) (*Conn, error) {
	err := self.validateAccept()
	var c *Conn
	if err == nil {
		err = within(ctx, conn, func() (err error) {
			c, err = accept(conn, self, accepts)
			return err
		})
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("raftlog: connection from %v: %w", conn.RemoteAddr(), err)
	}
	return c, nil
}

// within calls f, and has its reads and writes on conn fail when it is too late.
func within(ctx context.Context, conn net.Conn, f func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTime, errSlow)
	defer cancel()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		conn.Close()
	})
	err := f()
	if !stop() {
		<-interrupted
		if !errors.Is(err, api.ErrRefused) {
			err = fmt.Errorf("no handshake: %w", context.Cause(ctx))
		}
	}
	return err
}

func dial(raw net.Conn, self Identity, wantID string, purpose Purpose) (*Conn, error) {
	g := &greeting{Hello: Hello{Cluster: self.Cluster, ID: self.ID, Addr: self.Addr, Peer: self.Peer, Purpose: purpose, Claim: self.Claim}, to: wantID}
	stream := raw
	var binding []byte
	if !self.Insecure {
		conn := tls.Client(raw, self.clientTLS(raw))
		err := conn.Handshake()
		if err != nil {
			return nil, explain(err)
		}
		if binding, err = channel(conn); err != nil {
			return nil, err
		}
		stream = conn
	}
	secret := self.Secret
	if len(secret) > 0 {
		g.proof = proveGreeting(secret, g, binding)
	}
	c := newConn(raw, stream)
	if err := c.WriteFrame(g.encode()); err != nil {
		return nil, explain(err)
	}
	frame, err := c.ReadFrame()
	if err != nil {
		return nil, explain(err)
	}
	a, err := decodeAnswer(frame)
	switch {
	case errors.Is(err, errVersion):
		return nil, &RefusedError{Reason: ReasonVersion, Err: err}
	case err != nil:
		return nil, &RefusedError{Reason: ReasonProtocol, Err: err}
	case a.reason == ReasonSecret || a.reason == ReasonNoSecret || a.reason == ReasonVersion:
		// Who gives these cannot prove anything, and they change nothing here.
	case len(secret) > 0 && !proven(proveAnswer(secret, g, &a, binding), a.proof):
		return nil, &RefusedError{Reason: ReasonUnproven}
	}
	if a.reason != accepted {
		return nil, &RefusedError{Reason: a.reason, Text: a.text}
	}
	if wantID != "" && a.id != wantID {
		return nil, &RefusedError{Reason: ReasonID, Text: fmt.Sprintf("it is peer %q", a.id)}
	}
	c.remote = Hello{Cluster: self.Cluster, ID: a.id, Addr: a.addr, Peer: a.peer, Purpose: purpose, Claim: a.claim}
	c.limit = MaxFrame
	return c, nil
}

func accept(raw net.Conn, self Identity, accepts []func(Hello) error) (*Conn, error) {
	stream := raw
	var binding []byte
	if !self.Insecure {
		config, err := self.serverTLS()
		if err != nil {
			return nil, err
		}
		conn := tls.Server(raw, config)
		if err := conn.Handshake(); err != nil {
			if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && plain.Conn != nil {
				newConn(raw, raw).WriteFrame((&answer{reason: ReasonPlain}).encode())
			}
			linger(raw)
			return nil, explainServer(err)
		}
		if binding, err = channel(conn); err != nil {
			return nil, err
		}
		stream = conn
	}
	c := newConn(raw, stream)
	frame, err := c.ReadFrame()
	if err != nil {
		if errors.Is(err, api.ErrTooLarge) {
			linger(raw)
		}
		return nil, explain(err)
	}
	g, err := decodeGreeting(frame)
	if err != nil {
		refused := &RefusedError{Reason: ReasonProtocol, Err: err}
		if errors.Is(err, errVersion) {
			refused.Reason = ReasonVersion
			c.refuse(&answer{reason: ReasonVersion})
		}
		return nil, refused
	}
	if reason := authenticate(self, &g, binding); reason != accepted {
		c.refuse(&answer{reason: reason})
		return nil, &RefusedError{Reason: reason, Text: fmt.Sprintf("it says to be %q of cluster %q", g.ID, g.Cluster)}
	}
	a := &answer{id: self.ID, addr: self.Addr, peer: self.Peer, claim: self.Claim}
	refused := judge(self, &g, accepts)
	if refused != nil {
		a.reason, a.text = refused.Reason, refused.Text
	}
	if len(self.Secret) > 0 {
		a.proof = proveAnswer(self.Secret, &g, a, binding)
	}
	if refused != nil {
		c.refuse(a)
		return nil, fmt.Errorf("%q: %w", g.ID, refused)
	}
	if err := c.WriteFrame(a.encode()); err != nil {
		return nil, err
	}
	c.remote = g.Hello
	c.limit = MaxFrame
	return c, nil
}

// authenticate is before all else: whoever does not know the secret learns nothing.
func authenticate(self Identity, g *greeting, binding []byte) Reason {
	switch {
	case len(self.Secret) == 0 && len(g.proof) > 0:
		return ReasonNoSecret
	case len(self.Secret) > 0 && !proven(proveGreeting(self.Secret, g, binding), g.proof):
		return ReasonSecret
	}
	return accepted
}

// judge looks at what a process of the cluster wants.
func judge(self Identity, g *greeting, accepts []func(Hello) error) *RefusedError {
	refuse := func(reason Reason, format string, args ...any) *RefusedError {
		text := fmt.Sprintf(format, args...)
		return &RefusedError{Reason: reason, Text: text[:min(len(text), maxText)]}
	}
	switch {
	case g.Cluster != self.Cluster:
		return refuse(ReasonCluster, "the listening side belongs to %q, the connecting side to %q", self.Cluster, g.Cluster)
	case g.to != "" && g.to != self.ID:
		return refuse(ReasonID, "it is peer %q, not %q", self.ID, g.to)
	case g.ID == "":
		return refuse(ReasonNotAccepted, "it has no ID")
	case g.Peer && g.ID == self.ID:
		return refuse(ReasonSameID, "it is %q", g.ID)
	case !g.Purpose.isKnown():
		return refuse(ReasonPurpose, "unknown purpose %v", g.Purpose)
	case !g.Purpose.ForClients() && !g.Peer:
		return refuse(ReasonPurpose, "connections for %v are reserved for peers", g.Purpose)
	}
	for _, f := range accepts {
		err := f(g.Hello)
		if err == nil {
			continue
		}
		if refused := (*RefusedError)(nil); errors.As(err, &refused) && refused.Reason != accepted && refused.Reason < ReasonUnproven {
			return refuse(refused.Reason, "%s", refused.Text)
		}
		return refuse(ReasonNotAccepted, "%v", err)
	}
	return nil
}

// refuse tells the other side why, if it will listen.
func (c *Conn) refuse(a *answer) {
	if c.WriteFrame(a.encode()) == nil {
		linger(c.raw)
	}
}

// linger waits until the other side has closed the connection, for a while. If this side
// closed it while there is something to read, what was written last would be lost.
func linger(raw net.Conn) {
	if half, ok := raw.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	raw.SetReadDeadline(time.Now().Add(lingerTime))
	io.CopyN(io.Discard, raw, 64<<10)
}

// explainServer is explain for the side that accepts, whose TLS says most of what displeases
// it by errors without a type.
func explainServer(err error) error {
	explained := explain(err)
	var network net.Error
	if errors.Is(explained, api.ErrRefused) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.As(err, &network) {
		return explained
	}
	return &RefusedError{Reason: ReasonCertificate, Err: err}
}

// explain says what an error of a handshake means.
func explain(err error) error {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var remote *net.OpError
	switch {
	case errors.As(err, &certificate):
		return &RefusedError{Reason: ReasonCertificate, Err: err}
	case errors.As(err, &record), errors.Is(err, api.ErrTooLarge):
		return &RefusedError{Reason: ReasonProtocol, Err: err}
	case errors.As(err, &remote) && (remote.Op == "remote error" || remote.Op == "local error"):
		return &RefusedError{Reason: ReasonCertificate, Err: err}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the other side closed the connection during the handshake; "+
			"if this happens repeatedly, %v: %w", ReasonProtocol, err)
	}
	return err
}
