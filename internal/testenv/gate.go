package testenv

import (
	"context"
	"sync"
)

// Gate blocks goroutines while it is closed. A new gate is open. Its methods may be called from
// any goroutine.
type Gate struct {
	mu   sync.Mutex
	open chan struct{} // a channel that is closed while the gate is open
}

// NewGate returns an open gate.
func NewGate() *Gate {
	g := &Gate{open: make(chan struct{})}
	close(g.open)
	return g
}

// Close makes Wait block. It does nothing if the gate is closed.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		g.open = make(chan struct{})
	default:
	}
}

// Open unblocks the goroutines in Wait. It does nothing if the gate is open.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// Wait blocks while the gate is closed. It reports whether it has blocked, and returns the error of ctx if ctx is
// done first.
func (g *Gate) Wait(ctx context.Context) (blocked bool, err error) {
	for {
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		if ctx.Err() != nil {
			return blocked, ctx.Err()
		}
		select {
		case <-open:
			return blocked, nil
		default:
		}
		blocked = true
		select {
		case <-open: // check again, because Close may have closed the gate in the meantime
		case <-ctx.Done():
		}
	}
}
