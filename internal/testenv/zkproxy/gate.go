package zkproxy

import (
	"context"
	"sync"
)

// gate is something to wait at while it is shut.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while the gate is open
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		g.open = make(chan struct{})
	default:
	}
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// wait blocks while the gate is shut. It returns whether it had to, or an
// error when ctx ends.
func (g *gate) wait(ctx context.Context) (waited bool, err error) {
	for {
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		if ctx.Err() != nil {
			return waited, ctx.Err()
		}
		select {
		case <-open:
			return waited, nil
		default:
		}
		waited = true
		select {
		case <-open: // it may have been shut again
		case <-ctx.Done():
		}
	}
}
