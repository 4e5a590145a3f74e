package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// keeper keeps a connection to one address of a peer.
type keeper struct {
	p      *peer
	addr   string
	cancel context.CancelFunc
	kick   chan struct{} // dial at once
}

// startKeeper begins to keep a connection to a peer. With t.mu held.
func (t *Transport) startKeeper(p *peer) {
	ctx, cancel := context.WithCancel(t.ctx)
	k := &keeper{p: p, addr: p.addr, cancel: cancel, kick: make(chan struct{}, 1)}
	p.keeper = k
	t.group.Go(func() {
		defer cancel()
		t.keep(ctx, k)
	})
}

// stopKeeper ends a peer's keeper. Its session ends when what waits is sent, or is returned
// for the caller to end. With t.mu held.
func (t *Transport) stopKeeper(p *peer, drain bool) *session {
	if p.keeper == nil {
		return nil
	}
	p.keeper.cancel()
	p.keeper = nil
	switch s := p.out; {
	case s == nil:
	case drain:
		s.leaving = true
		s.wakeUp()
	default:
		return s
	}
	return nil
}

func (t *Transport) keep(ctx context.Context, k *keeper) {
	pause := minPause
	report := reporter{every: time.Minute}
	for ctx.Err() == nil {
		conn, err := t.dial(ctx, k.addr, k.p.id, link.PurposeRaft)
		if err == nil {
			pause = minPause
			report = reporter{every: time.Minute}
			t.serveDialed(k, conn)
			select {
			case <-k.kick: // it was for an attempt that has succeeded
			default:
			}
		} else if ctx.Err() == nil && report.due(err) {
			t.cfg.Log.Warn("cannot connect to peer", "peer", k.p.id, "addr", k.addr, "err", err)
		}
		timer := time.NewTimer(pause/2 + time.Duration(t.cfg.Rand()*float64(pause/2)))
		select {
		case <-timer.C:
		case <-k.kick:
		case <-ctx.Done():
		}
		timer.Stop()
		if err != nil {
			pause = min(2*pause, maxPause)
		}
	}
}

func (t *Transport) serveDialed(k *keeper, conn *link.Conn) {
	if !t.track(conn) {
		return
	}
	t.mu.Lock()
	if k.p.keeper != k || k.p.out != nil || k.p.otherProcess(conn.Remote().Claim) { // not wanted any more, or the one before is not gone yet
		t.mu.Unlock()
		t.release(conn)
		return
	}
	s := t.newSession(k.p, conn)
	k.p.out = s
	if k.p.sender == nil {
		k.p.sender = s
	}
	t.mu.Unlock()
	t.cfg.Log.Info("connected to peer", "peer", k.p.id, "addr", k.addr)
	err := s.serve()
	if t.ctx.Err() == nil {
		t.cfg.Log.Info("connection to peer ended", "peer", k.p.id, "addr", k.addr, "err", err)
	}
}

// dial connects to a peer and finds out that it is the one.
func (t *Transport) dial(ctx context.Context, addr, id string, purpose link.Purpose) (*link.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	raw, err := t.cfg.Dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("raftlog: connect to peer %q: %w", id, err)
	}
	keepUnsentSmall(raw)
	self := t.cfg.Self
	if host, _, err := net.SplitHostPort(addr); err == nil && self.ServerName == "" {
		self.ServerName = host
	}
	conn, err := link.Dial(ctx, raw, self, id, purpose)
	if refused := (*link.RefusedError)(nil); errors.As(err, &refused) && t.cfg.OnRefused != nil {
		t.cfg.OnRefused(id, refused)
	}
	if err != nil {
		return nil, err
	}
	if err := t.mayTakePart(conn.Remote()); err != nil {
		notAccepted(conn, purpose, err)
		return nil, fmt.Errorf("raftlog: the process at %s was rejected as peer %q: %w", addr, id, err)
	}
	return conn, nil
}
