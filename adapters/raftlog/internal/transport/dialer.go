package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// dialer maintains a connection to one peer, at one of the peer's addresses.
type dialer struct {
	peer     *peer
	cancel   context.CancelFunc
	retryNow chan struct{} // ends the pause before the next attempt to connect
	addr     string        // the address to which the session peer.dialed is connected
}

// startDialer starts the dialer of a peer. The caller holds t.mu.
func (t *Transport) startDialer(p *peer) {
	ctx, cancel := context.WithCancel(t.ctx)
	d := &dialer{peer: p, cancel: cancel, retryNow: make(chan struct{}, 1)}
	p.dialer = d
	t.goroutines.Go(func() {
		defer cancel()
		t.runDialer(ctx, d)
	})
}

// stopDialer stops the dialer of a peer. If drain is true, the session of the dialer ends after the
// queued frames are sent. Otherwise stopDialer returns that session, which the caller must close. The
// caller holds t.mu.
func (t *Transport) stopDialer(p *peer, drain bool) *session {
	if p.dialer == nil {
		return nil
	}
	p.dialer.cancel()
	p.dialer = nil
	switch s := p.dialed; {
	case s == nil:
	case drain:
		s.draining = true
		s.wakeUp()
	default:
		return s
	}
	return nil
}

// runDialer connects to the peer again and again until ctx is done. It tries one address after another,
// and begins with the first address again after a connection has ended.
func (t *Transport) runDialer(ctx context.Context, d *dialer) {
	pause := minPause
	reports := Reporters{}
	for i := 0; ; {
		t.mu.Lock()
		addrs := d.peer.addrs
		t.mu.Unlock()
		if ctx.Err() != nil || len(addrs) == 0 {
			return
		}
		addr := addrs[i%len(addrs)]
		conn, err := t.dialPeer(ctx, addr, d.peer.id, link.PurposeRaft)
		t.mu.Lock()
		d.peer.err = err
		t.mu.Unlock()
		if err == nil {
			pause, i = minPause, 0
			clear(reports)
			t.serveDialed(d, conn, addr)
			select {
			case <-d.retryNow: // discard a request from before the connection ended: it must not end the next pause
			default:
			}
		} else if i++; ctx.Err() == nil && reports.ShouldReport(addr, err) {
			t.cfg.Log.Warn("cannot connect to peer", "remote", d.peer.id, "addr", addr, "err", err)
		}
		if err != nil && i%len(addrs) != 0 {
			continue // try the next address of the peer
		}
		timer := time.NewTimer(pause/2 + time.Duration(t.cfg.Rand()*float64(pause/2)))
		select {
		case <-timer.C:
		case <-d.retryNow:
		case <-ctx.Done():
		}
		timer.Stop()
		if err != nil {
			pause = min(2*pause, maxPause)
		}
	}
}

// serveDialed exchanges frames with the peer on a new connection, until the connection ends.
func (t *Transport) serveDialed(d *dialer, conn *link.Conn, addr string) {
	if !t.trackCloser(conn) {
		return
	}
	t.mu.Lock()
	if d.peer.dialer != d || d.peer.dialed != nil || d.peer.isOtherProcess(conn.Remote().Claim) {
		// Close this connection, because the peer was removed or has moved, or an earlier connection
		// exists.
		t.mu.Unlock()
		t.closeTracked(conn)
		return
	}
	s := t.newSession(d.peer, conn)
	d.peer.dialed, d.addr = s, addr
	if d.peer.sender == nil {
		d.peer.sender = s
	}
	t.mu.Unlock()
	t.cfg.Log.Info("connected to peer", "remote", d.peer.id, "addr", addr)
	err := s.serve()
	if t.ctx.Err() == nil {
		t.cfg.Log.Info("connection to peer ended", "remote", d.peer.id, "addr", addr, "err", err)
	}
}

// dialPeer connects to a peer, and checks that the other side is that peer.
func (t *Transport) dialPeer(ctx context.Context, addr, id string, purpose link.Purpose) (*link.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	raw, err := t.cfg.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	limitUnsent(raw)
	conn, err := link.Dial(ctx, raw, t.cfg.Self, api.Peer{ID: id, Addr: addr}, purpose)
	if refused := (*link.RefusedError)(nil); errors.As(err, &refused) && t.cfg.OnRefused != nil {
		t.cfg.OnRefused(id, refused)
	}
	if err != nil {
		return nil, err
	}
	if err := t.checkRemote(conn.Remote()); err != nil {
		sendRefusal(conn, purpose, err)
		return nil, fmt.Errorf("raftlog: the process at %s was rejected as peer %q: %w", addr, id, err)
	}
	return conn, nil
}
