package transport

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// maxPending is the maximum number of concurrent handshakes. If there are more, the oldest handshake is
// cancelled, so that processes that do not complete theirs cannot prevent other connections.
const maxPending = 256

// errOtherProcess rejects a second process with the ID of a process that is already connected. A peer
// cannot determine which of the two has the newer data, and the first process may have voted.
var errOtherProcess = &link.RefusedError{Reason: link.ReasonRunning}

// hasOtherProcess reports whether this peer is connected to another process with the ID of h.
func (t *Transport) hasOtherProcess(h link.Hello) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[h.ID]
	return p != nil && p.isOtherProcess(h.Claim)
}

var errTooManyHandshakes = errors.New("too many connections without a handshake")

// pendingConn is an accepted connection whose handshake has not completed.
type pendingConn struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// acceptConns accepts connections until the transport or the listener is closed.
func (t *Transport) acceptConns() {
	const first, last = 5 * time.Millisecond, time.Second
	pause := first
	for {
		conn, err := t.cfg.Listener.Accept()
		if err == nil {
			pause = first
			t.startHandshake(conn)
			continue
		}
		if t.ctx.Err() != nil {
			return
		}
		if errors.Is(err, net.ErrClosed) {
			t.cfg.Log.Error("listener was closed: no peer can connect", "err", err)
			return
		}
		t.warnThrottled("accepting connections failed", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-t.ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, last)
	}
}

// startHandshake executes the handshake of an accepted connection, and then serves the connection, in a
// new goroutine.
func (t *Transport) startHandshake(conn net.Conn) {
	pending := &pendingConn{}
	pending.ctx, pending.cancel = context.WithCancelCause(t.ctx)
	t.mu.Lock()
	if !t.running {
		t.mu.Unlock()
		pending.cancel(nil)
		conn.Close()
		return
	}
	t.pending = append(t.pending, pending)
	if len(t.pending) > maxPending {
		t.pending[0].cancel(errTooManyHandshakes)
		t.pending = slices.Delete(t.pending, 0, 1)
	}
	t.mu.Unlock()
	t.goroutines.Go(func() {
		limitUnsent(conn)
		c, err := link.Accept(pending.ctx, conn, t.cfg.Self, t.checkAccepted)
		t.mu.Lock()
		t.pending = slices.DeleteFunc(t.pending, func(p *pendingConn) bool { return p == pending })
		t.mu.Unlock()
		pending.cancel(nil)
		switch {
		case err == nil:
			t.serveAccepted(c)
		case t.ctx.Err() == nil:
			t.warnThrottled("connection not accepted", err)
		}
	})
}

// checkAccepted returns an error if a process of the cluster that has connected to this peer must be
// rejected.
func (t *Transport) checkAccepted(h link.Hello) error {
	if h.Purpose.ForClients() && t.cfg.OnClient == nil ||
		h.Purpose == link.PurposeSnapshot && t.cfg.OnSnapshot == nil {
		return &link.RefusedError{Reason: link.ReasonPurpose, Text: h.Purpose.String()}
	}
	return t.checkRemote(h)
}

// checkRemote returns an error if a process of the cluster must be rejected, whichever side has dialed.
func (t *Transport) checkRemote(h link.Hello) error {
	if !h.Purpose.ForClients() && t.hasOtherProcess(h) {
		return errOtherProcess
	}
	if t.cfg.Accepts != nil {
		return t.cfg.Accepts(h)
	}
	return nil
}

// serveAccepted serves an accepted connection for its purpose: frames of a peer, a snapshot, or the calls of a
// client. It returns when the connection is not used any more.
func (t *Transport) serveAccepted(c *link.Conn) {
	if !t.trackCloser(c) {
		return
	}
	switch purpose := c.Remote().Purpose; {
	case purpose.ForClients():
		t.cfg.OnClient(c)
	case purpose == link.PurposeSnapshot:
		t.cfg.OnSnapshot(c)
	default:
		t.servePeer(c)
		return
	}
	t.closeTracked(c)
}

// servePeer exchanges frames with a peer that has connected to this one. The new connection replaces an
// earlier connection of the same peer: if the earlier connection were usable, the peer would not have
// connected again.
func (t *Transport) servePeer(c *link.Conn) {
	from := c.Remote()
	t.mu.Lock()
	p := t.ensurePeer(from.ID)
	if p.isOtherProcess(from.Claim) { // another process has connected during this handshake
		t.mu.Unlock()
		t.closeTracked(c)
		return
	}
	s := t.newSession(p, c)
	old := p.accepted
	p.accepted = s
	replaced := old != nil && p.sender == old
	if replaced || p.sender == nil {
		p.sender = s
	}
	if p.dialer != nil && p.dialed == nil {
		signal(p.dialer.retryNow) // dial the peer without a pause, because it is reachable
	}
	t.mu.Unlock()
	if old != nil {
		old.close()
	}
	if replaced {
		t.unreachable.addID(p.id) // frames that the replaced session has sent may not have arrived
	}
	t.cfg.Log.Info("peer connected", "remote", from.ID, "from", c.RemoteAddr().String())
	err := s.serve()
	if t.ctx.Err() == nil {
		t.cfg.Log.Info("connection from peer ended", "remote", from.ID, "from", c.RemoteAddr().String(), "err", err)
	}
}
