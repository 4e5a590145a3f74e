package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

const (
	// handshakeTimeout is the maximum duration of a handshake.
	handshakeTimeout = 5 * time.Second
	// lingerTimeout is the time for which a side keeps a rejected connection open, so that the other
	// side can read the reason.
	lingerTimeout = time.Second
)

var errHandshakeTimeout = fmt.Errorf("the handshake did not complete within %v", handshakeTimeout)

// Dial executes the handshake on conn, which the caller has dialed. The other side must be the peer
// with the ID to.ID, or any peer if to.ID is empty. If certificates are verified, the peer's
// certificate must contain the host of to.Addr. Dial returns an error when ctx is done, and after five
// seconds at the latest. If one side rejects the other, the error wraps api.ErrRefused and is a
// RefusedError with the reason. If self is invalid, the error wraps api.ErrInvalid. After an error,
// conn is closed.
func Dial(ctx context.Context, conn net.Conn, self Identity, to api.Peer, purpose Purpose) (*Conn, error) {
	err := self.validateDial()
	switch {
	case err != nil:
	case len(to.ID) > maxField:
		err = invalid("the requested ID has %d bytes, the limit is %d", len(to.ID), maxField)
	case !purpose.isKnown():
		err = invalid("unknown purpose %v", purpose)
	case !purpose.ForClients() && !self.Peer:
		err = invalid("connections for %v are reserved for peers", purpose)
	}
	var c *Conn
	if err == nil {
		err = withTimeout(ctx, conn, func() (err error) {
			c, err = dialHandshake(conn, self, to, purpose)
			return err
		})
	}
	if err != nil {
		conn.Close()
		return nil, err // the caller adds the peer and its address to the error
	}
	return c, nil
}

// Accept executes the handshake on conn, which the caller has accepted from a listener. As Dial, it
// returns after five seconds at the latest, returns the same errors, and closes conn after an error.
// After Accept has authenticated the other side, it calls each of the functions accepts. If one of them
// returns an error, Accept rejects the connection with the text of that error, and with its reason if
// it is a RefusedError. The functions must return within the time limit of the handshake.
func Accept(ctx context.Context, conn net.Conn, self Identity, accepts ...func(Hello) error) (*Conn, error) {
	err := self.validateAccept()
	var c *Conn
	if err == nil {
		err = withTimeout(ctx, conn, func() (err error) {
			c, err = acceptHandshake(conn, self, accepts)
			return err
		})
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("raftlog: connection from %v: %w", conn.RemoteAddr(), err)
	}
	return c, nil
}

// withTimeout calls handshake, and closes conn when ctx is done, or after handshakeTimeout, so that
// handshake returns.
func withTimeout(ctx context.Context, conn net.Conn, handshake func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTimeout, errHandshakeTimeout)
	defer cancel()
	stop := CloseWhenDone(ctx, conn)
	err := handshake()
	if closed := stop(); closed && !errors.Is(err, api.ErrRefused) {
		err = fmt.Errorf("no handshake: %w", context.Cause(ctx))
	}
	return err
}

// CloseWhenDone closes conn when ctx is done, unless the caller calls stop before. The function stop
// reports whether conn was closed; it waits while conn is being closed. The caller must call stop
// exactly once.
func CloseWhenDone(ctx context.Context, conn io.Closer) (stop func() (closed bool)) {
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		conn.Close()
	})
	return func() bool {
		if cancel() {
			return false
		}
		<-done
		return true
	}
}

// dialHandshake executes the handshake as the dialing side. It does not limit the time.
func dialHandshake(raw net.Conn, self Identity, to api.Peer, purpose Purpose) (*Conn, error) {
	secret, err := self.dialSecret()
	if err != nil {
		return nil, err
	}
	g := &greeting{versions: self.versionRange(), hello: Hello{Cluster: self.Cluster, ID: self.ID, Addr: self.Addr, Peer: self.Peer, Purpose: purpose, Claim: self.Claim}, wantedID: to.ID}
	stream := raw
	var binding []byte
	if !self.Insecure {
		conn := tls.Client(raw, self.clientTLS(raw, to.Addr))
		err := conn.Handshake()
		if err != nil {
			return nil, classifyError(err)
		}
		if err := self.checkServer(conn.ConnectionState()); err != nil {
			return nil, err
		}
		if binding, err = channelBinding(conn); err != nil {
			return nil, err
		}
		stream = conn
	}
	g.content = g.encodeContent()
	if len(secret) > 0 {
		g.proof = greetingProof(secret, g.content, binding)
	}
	c := newConn(raw, stream)
	if err := c.WriteFrame(g.encode()); err != nil {
		return nil, classifyError(err)
	}
	frame, err := c.ReadFrame()
	if err != nil {
		return nil, classifyError(err)
	}
	r, err := decodeReply(frame)
	switch {
	case errors.Is(err, errVersion):
		return nil, &RefusedError{Reason: ReasonVersion, Err: err}
	case err != nil:
		return nil, &RefusedError{Reason: ReasonProtocol, Err: err}
	}
	proven := len(secret) == 0 || equalProofs(replyProof(secret, g.content, r.content, binding), r.proof)
	if !proven && !r.reason.isSentWithoutProof() {
		return nil, &RefusedError{Reason: ReasonUnproven}
	}
	version, err := g.versions.highestCommon(r.versions)
	switch {
	case r.reason == ReasonVersion && err != nil:
		return nil, &RefusedError{Reason: ReasonVersion, Err: err, Proven: proven}
	case r.reason != accepted && !proven:
		return nil, &RefusedError{Reason: r.reason} // drop the text, because any process can have written it
	case r.reason != accepted:
		return nil, &RefusedError{Reason: r.reason, Text: r.text, Proven: true}
	case err != nil:
		return nil, &RefusedError{Reason: ReasonVersion, Err: err, Proven: true}
	case to.ID != "" && r.id != to.ID:
		return nil, &RefusedError{Reason: ReasonID, Text: fmt.Sprintf("the process there is peer %q", r.id), Proven: true}
	}
	c.version = version
	c.secret, c.byPeer = secret, self.Peer
	c.remote = Hello{Cluster: self.Cluster, ID: r.id, Addr: r.addr, Peer: r.peer, Purpose: purpose, Claim: r.claim}
	c.limits.Max = MaxFrame
	return c, nil
}

// dialSecret returns the secret with which this process dials, or nil if it dials without a secret.
func (i Identity) dialSecret() ([]byte, error) {
	all, err := i.currentSecrets()
	if own := all.ofRole(i.Peer); err == nil && len(own) > 0 {
		return own[0], nil
	}
	return nil, err
}

// checkServer checks that the certificate of the accepting side contains one of the allowed names. TLS
// has verified before that it contains the host of the peer.
func (i Identity) checkServer(s tls.ConnectionState) error {
	if len(i.PeerNames) == 0 || hasName(s.PeerCertificates[0], i.PeerNames) {
		return nil
	}
	return &RefusedError{Reason: ReasonCertificate, Err: fmt.Errorf("the certificate is for %s, which is not one of the allowed names %s",
		strings.Join(certificateNames(s.PeerCertificates[0]), ", "), strings.Join(i.PeerNames, ", "))}
}

// isSentWithoutProof reports whether the accepting side may send the reason to a process that has not proved
// to know the secret. Such a reply contains no proof of the accepting side either.
func (r Reason) isSentWithoutProof() bool {
	return r == ReasonSecret || r == ReasonNoSecret || r == ReasonVersion || r == ReasonNoClients
}

// acceptHandshake executes the handshake as the accepting side. It does not limit the time.
func acceptHandshake(raw net.Conn, self Identity, accepts []func(Hello) error) (*Conn, error) {
	all, err := self.currentSecrets()
	if err != nil {
		return nil, err
	}
	stream := raw
	var binding []byte
	var certificate *x509.Certificate
	if !self.Insecure {
		config, err := self.serverTLS()
		if err != nil {
			return nil, err
		}
		conn := tls.Server(raw, config)
		if err := conn.Handshake(); err != nil {
			if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && plain.Conn != nil {
				newConn(raw, raw).WriteFrame((&reply{versions: self.versionRange(), reason: ReasonPlain}).encode())
			}
			awaitClose(raw)
			return nil, classifyServerError(err)
		}
		if binding, err = channelBinding(conn); err != nil {
			return nil, err
		}
		if shown := conn.ConnectionState().PeerCertificates; len(shown) > 0 {
			certificate = shown[0]
		}
		stream = conn
	}
	c := newConn(raw, stream)
	frame, err := c.ReadFrame()
	if err != nil {
		if errors.Is(err, ErrFrameTooLarge) {
			awaitClose(raw)
		}
		return nil, classifyError(err)
	}
	g, err := decodeGreeting(frame)
	var version byte
	if err == nil {
		version, err = self.versionRange().highestCommon(g.versions)
	}
	r := &reply{versions: self.versionRange()}
	if err != nil {
		refused := &RefusedError{Reason: ReasonProtocol, Err: err}
		if errors.Is(err, errVersion) {
			refused.Reason, r.reason = ReasonVersion, ReasonVersion
			c.sendRefusal(r)
		}
		return nil, refused
	}
	shown, secret := all.secretInGreeting(&g, binding)
	control := self.accessFor(all, g.hello.ID)
	if r.reason = control.checkSecret(shown, g.hello.Peer); r.reason != accepted {
		if secret != nil { // the other side knows one of the secrets, so it may learn that this is the wrong one
			r.proof = replyProof(secret, g.content, r.encodeContent(), binding)
		}
		c.sendRefusal(r)
		return nil, &RefusedError{Reason: r.reason, Text: fmt.Sprintf("the connecting process claims to be %q of cluster %q", g.hello.ID, g.hello.Cluster)}
	}
	r.id, r.addr, r.peer = self.ID, self.Addr, self.Peer
	refused := checkGreeting(self, &g, func() (Reason, string) { return control.checkCertificate(certificate, g.hello) }, accepts)
	switch {
	case refused != nil:
		r.reason, r.text = refused.Reason, refused.Text
	case g.hello.Peer: // only a peer receives the claim: a process that knows the claim could pretend to be this peer
		r.claim = self.Claim
	}
	if secret != nil {
		r.proof = replyProof(secret, g.content, r.encodeContent(), binding)
	}
	if refused != nil {
		c.sendRefusal(r)
		return nil, fmt.Errorf("%q: %w", g.hello.ID, refused)
	}
	if err := c.WriteFrame(r.encode()); err != nil {
		return nil, err
	}
	c.version = version
	c.secret, c.byPeer = secret, g.hello.Peer
	c.remote = g.hello
	c.limits.Max = MaxFrame
	return c, nil
}

// secretInGreeting returns the secret by which the proof in a greeting was computed, and the kind of the secret.
// The kind is secretNone if the greeting contains no proof.
func (s secrets) secretInGreeting(g *greeting, binding []byte) (secretKind, []byte) {
	if len(g.proof) == 0 {
		return secretNone, nil
	}
	return s.find(func(secret []byte) bool { return equalProofs(greetingProof(secret, g.content, binding), g.proof) })
}

// checkGreeting decides whether to accept a process that has proved to know the secret of its role. It
// calls checkCertificate, and then the functions accepts.
func checkGreeting(self Identity, g *greeting, checkCertificate func() (Reason, string), accepts []func(Hello) error) *RefusedError {
	refuse := func(reason Reason, format string, args ...any) *RefusedError {
		text := fmt.Sprintf(format, args...)
		return &RefusedError{Reason: reason, Text: text[:min(len(text), maxField)]}
	}
	switch {
	case g.hello.Cluster != self.Cluster:
		return refuse(ReasonCluster, "the listening side belongs to %q, the connecting side to %q", self.Cluster, g.hello.Cluster)
	case g.wantedID != "" && g.wantedID != self.ID:
		return refuse(ReasonID, "the listening process is peer %q, not %q", self.ID, g.wantedID)
	case g.hello.ID == "":
		return refuse(ReasonNotAccepted, "the ID is empty")
	case g.hello.Peer && g.hello.ID == self.ID:
		return refuse(ReasonSameID, "both sides have the ID %q", g.hello.ID)
	case !g.hello.Purpose.isKnown():
		return refuse(ReasonPurpose, "unknown purpose %v", g.hello.Purpose)
	case !g.hello.Purpose.ForClients() && !g.hello.Peer:
		return refuse(ReasonPurpose, "connections for %v are reserved for peers", g.hello.Purpose)
	}
	if reason, text := checkCertificate(); reason != accepted {
		return refuse(reason, "%s", text)
	}
	for _, accept := range accepts {
		err := accept(g.hello)
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

// sendRefusal sends a reply with the reason of a rejection, and waits until the other side closes the
// connection.
func (c *Conn) sendRefusal(r *reply) {
	if c.WriteFrame(r.encode()) == nil {
		awaitClose(c.raw)
	}
}

// awaitClose waits until the other side has closed the connection, but not longer than lingerTimeout.
// If this side closed the connection while it has not read all received data, the data that it has
// written last could be lost.
func awaitClose(raw net.Conn) {
	if half, ok := raw.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	raw.SetReadDeadline(time.Now().Add(lingerTimeout))
	io.CopyN(io.Discard, raw, 64<<10)
}

// classifyServerError is classifyError for the accepting side. On this side, crypto/tls returns most
// errors about certificates without a type, so classifyServerError recognizes them by their texts.
func classifyServerError(err error) error {
	classified := classifyError(err)
	var network net.Error
	if errors.Is(classified, api.ErrRefused) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.As(err, &network) {
		return classified
	}
	return &RefusedError{Reason: ReasonCertificate, Err: err}
}

// classifyError returns a RefusedError with a reason if err, the error of a handshake, has a known
// cause. If the other side has closed the connection, it adds a possible cause to the error.
func classifyError(err error) error {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var remote *net.OpError
	switch {
	case errors.As(err, &certificate):
		return &RefusedError{Reason: ReasonCertificate, Err: err}
	case errors.As(err, &record), errors.Is(err, ErrFrameTooLarge):
		return &RefusedError{Reason: ReasonProtocol, Err: err}
	case errors.As(err, &remote) && (remote.Op == "remote error" || remote.Op == "local error"):
		return &RefusedError{Reason: ReasonCertificate, Err: err}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the other side closed the connection during the handshake; "+
			"if this happens repeatedly, %v: %w", ReasonProtocol, err)
	}
	return err
}
