package cursor

import (
	"context"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/closing"
)

// closeTime is how long an end waits for a driver that does not let go.
const closeTime = 1500 * time.Millisecond

// Life is that of a store or of a feed: what it has begun ends with it. Its methods may
// be called from any goroutine.
type Life struct {
	ctx context.Context
	end context.CancelFunc

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when it has ended and nothing runs any more
}

// NewLife returns one that ends with parent, and with Close.
func NewLife(parent context.Context) *Life {
	l := &Life{idle: make(chan struct{})}
	l.ctx, l.end = context.WithCancel(parent)
	return l
}

// Context is done at the end.
func (l *Life) Context() context.Context { return l.ctx }

// Begin is at the beginning of every method: the context that it returns ends with l, too.
func (l *Life) Begin(ctx context.Context) (context.Context, func(), error) {
	return closing.Begin(ctx, l.ctx)
}

// Go runs f, for which Close waits; unless l has ended.
func (l *Life) Go(f func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return changefeed.ErrClosed
	}
	l.running++
	go func() {
		defer l.gone()
		f()
	}()
	return nil
}

func (l *Life) gone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running--; l.running == 0 {
		close(l.idle)
		l.idle = make(chan struct{})
	}
}

// Close ends l, and waits for what runs as long as Close of a store may take. What has
// not ended by then ends when the driver lets go of it.
func (l *Life) Close() {
	l.end()
	l.mu.Lock()
	running, idle := l.running, l.idle
	l.mu.Unlock()
	if running == 0 {
		return
	}
	limit := time.NewTimer(closeTime)
	defer limit.Stop()
	select {
	case <-idle:
	case <-limit.C:
	}
}
