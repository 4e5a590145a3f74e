package transport

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// maxPending is how many connections may be in their handshakes. Of more the oldest have to
// go: those who mean well are done soon, and those who do not must not keep others out.
const maxPending = 256

// errRunning refuses a second process with the ID of a connected one. A peer cannot determine which
// of the two has the newer data, and the first one may have voted.
var errRunning = &link.RefusedError{Reason: link.ReasonRunning}

// otherProcess tells whether a process other than that of h is connected under its ID.
func (t *Transport) otherProcess(h link.Hello) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[h.ID]
	return p != nil && p.otherProcess(h.Claim)
}

var errCrowded = errors.New("too many connections without a handshake")

// pendingConn is a connection in its handshake.
type pendingConn struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (t *Transport) listen() {
	const first, last = 5 * time.Millisecond, time.Second
	pause := first
	for {
		conn, err := t.cfg.Listener.Accept()
		if err == nil {
			pause = first
			t.admit(conn)
			continue
		}
		if t.ctx.Err() != nil {
			return
		}
		if errors.Is(err, net.ErrClosed) {
			t.cfg.Log.Error("listener was closed: no peer can connect", "err", err)
			return
		}
		t.warn("accepting connections failed", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-t.ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, last)
	}
}

func (t *Transport) admit(conn net.Conn) {
	pending := &pendingConn{}
	pending.ctx, pending.cancel = context.WithCancelCause(t.ctx)
	t.mu.Lock()
	t.pending = append(t.pending, pending)
	if len(t.pending) > maxPending {
		t.pending[0].cancel(errCrowded)
		t.pending = slices.Delete(t.pending, 0, 1)
	}
	t.mu.Unlock()
	t.group.Go(func() {
		keepUnsentSmall(conn)
		c, err := link.Accept(pending.ctx, conn, t.cfg.Self, t.accepts)
		t.mu.Lock()
		t.pending = slices.DeleteFunc(t.pending, func(p *pendingConn) bool { return p == pending })
		t.mu.Unlock()
		pending.cancel(nil)
		switch {
		case err == nil:
			t.serveAccepted(c)
		case t.ctx.Err() == nil:
			t.warn("connection not accepted", err)
		}
	})
}

// accepts is link.Accept's question whether somebody of the cluster is welcome.
func (t *Transport) accepts(h link.Hello) error {
	if h.Purpose.ForClients() && t.cfg.OnClient == nil ||
		h.Purpose == link.PurposeSnapshot && t.cfg.OnSnapshot == nil {
		return &link.RefusedError{Reason: link.ReasonPurpose, Text: h.Purpose.String()}
	}
	return t.mayTakePart(h)
}

// mayTakePart decides about a process that has connected, or that this peer has connected to.
func (t *Transport) mayTakePart(h link.Hello) error {
	if h.Purpose == link.PurposeRaft && t.otherProcess(h) {
		return errRunning
	}
	if t.cfg.Accepts != nil {
		return t.cfg.Accepts(h)
	}
	return nil
}

func (t *Transport) serveAccepted(c *link.Conn) {
	if !t.track(c) {
		return
	}
	switch purpose := c.Remote().Purpose; {
	case purpose.ForClients():
		t.cfg.OnClient(c)
	case purpose == link.PurposeSnapshot:
		t.cfg.OnSnapshot(c)
	default:
		t.receive(c)
		return
	}
	t.release(c)
}

// receive serves a peer that has connected. Its newest connection is the one that counts: it
// would not have made it if the one before were of any use.
func (t *Transport) receive(c *link.Conn) {
	from := c.Remote()
	t.mu.Lock()
	p := t.peer(from.ID)
	if p.otherProcess(from.Claim) { // both handshakes took place at the same time
		t.mu.Unlock()
		t.release(c)
		return
	}
	s := t.newSession(p, c)
	old := p.in
	p.in = s
	replaced := old != nil && p.sender == old
	if replaced || p.sender == nil {
		p.sender = s
	}
	if p.keeper != nil && p.out == nil {
		select {
		case p.keeper.kick <- struct{}{}: // it is there: our attempts need not wait
		default:
		}
	}
	t.mu.Unlock()
	if old != nil {
		old.end()
	}
	if replaced {
		t.unreachable.put(p.id) // what the old one had to send may be lost
	}
	t.cfg.Log.Info("peer connected", "peer", from.ID, "from", c.RemoteAddr().String())
	err := s.serve()
	if t.ctx.Err() == nil {
		t.cfg.Log.Info("connection from peer ended", "peer", from.ID, "from", c.RemoteAddr().String(), "err", err)
	}
}
