package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/grant"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// place is one contender's position in the queue, from the first request until nothing is left
// of it. Its goroutine runs the contender.
type place struct {
	conn    *zk.Conn
	dir     string                  // the lock's znode
	timeout time.Duration           // of the session
	ctx     context.Context         // is done when the contender must leave
	stop    context.CancelCauseFunc // makes the contender leave for a reason
	granted chan *Hold              // capacity 1
	entered chan struct{}           // closed when the path is known; nil if Position is not available
	left    chan struct{}           // closed when the goroutine has ended
	beside  []string                // other znodes that must exist during the grant; set before it

	member *queue.Member
	delay  *delayed // nil without a lock-delay
	turn   turn
	// resume starts the goroutine of the contender, if it does not run when the lock is granted.
	// It is nil if the goroutine was started before the grant, and does not change after the
	// grant.
	resume *time.Timer

	mu       sync.Mutex
	path     string        // of the contender's znode
	renaming chan struct{} // closed when a rename is over (downgrade.go); nil before the first
	watching chan struct{} // closed when awaitRevocation has returned; nil before it is called
	revoked  chan struct{} // closed when the release is requested; nil before Revoked is called

	// Written by the goroutine before left is closed.
	err     error
	removal *queue.Removal
}

// contest describes one acquisition.
type contest struct {
	cfg   *queue.Config
	once  bool          // do not wait for other contenders, but return ErrHeld
	delay time.Duration // the lock-delay after the loss of a holder
	asks  bool          // Position may be called
}

// errGivenUp is the reason to leave if the caller of Lock does not wait any more. The cause of the
// caller's context must not be used as the reason, because it may be the loss of another hold.
var errGivenUp = errors.New("the caller no longer waits")

// wait waits in the queue until it is the contender's turn, and returns the grant; or until the
// context is done or the contender fails, and returns the reason.
func (c contest) wait(ctx context.Context) (*Hold, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if ctx.Done() == nil && c.delay == 0 {
		return c.waitHere()
	}
	p := c.start()
	select {
	case h := <-p.granted:
		return h, nil
	case <-p.left:
		return nil, p.err
	case <-ctx.Done():
		p.stop(errGivenUp)
		return nil, context.Cause(ctx)
	}
}

// waitHere is wait for a context that is never done: the caller's goroutine runs the contender.
// Only if the hold lasts longer than OwnDelay, a goroutine is started for it.
func (c contest) waitHere() (*Hold, error) {
	p := c.prepare()
	if p.member.RunUntil(p.ctx, func() bool { return len(p.granted) > 0 }) {
		p.leave()
		if len(p.granted) == 0 {
			return nil, p.err
		}
		return <-p.granted, nil // the lock was granted and is already lost
	}
	h := <-p.granted
	p.resume = time.AfterFunc(contender.OwnDelay, p.run)
	return h, nil
}

// start runs the contender in a new goroutine.
func (c contest) start() *place {
	p := c.prepare()
	go p.run()
	return p
}

// prepare returns a contender that does not run yet.
func (c contest) prepare() *place {
	p := &place{
		conn: c.cfg.Conn, dir: c.cfg.Dir, timeout: c.cfg.Timeout,
		granted: make(chan *Hold, 1), left: make(chan struct{}),
	}
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	p.turn = turn{place: p, once: c.once}
	c.cfg.Alone = true
	if c.asks {
		p.entered = make(chan struct{})
	}
	report := p.turn.changed
	if c.delay > 0 {
		p.delay = &delayed{ctx: p.ctx, cfg: c.cfg, delay: c.delay, next: p.turn.changed, stop: p.stop}
		c.cfg.Parting, report = p.delay.parting, p.delay.changed
	}
	p.member = queue.Join(c.cfg, report)
	return p
}

// run runs the contender until it has left.
func (p *place) run() {
	p.member.RunUntil(p.ctx, func() bool { return false })
	p.leave()
}

// leave removes the znodes of a contender after it has left the queue.
func (p *place) leave() {
	defer close(p.left)
	p.removal, p.err = p.member.Leave(p.ctx)
	p.stop(p.err) // releases the context
	if p.delay != nil {
		p.delay.wait()
	}
}

// resumeNow makes the contender run if it does not run yet: in the caller's goroutine if here is
// true, and otherwise in a new one.
func (p *place) resumeNow(here bool) {
	if p.resume == nil || !p.resume.Stop() {
		return
	}
	if here {
		p.run()
	} else {
		go p.run()
	}
}

// gone waits until the znodes of the contender are removed. It returns an error if ctx is done
// first or if they cannot be removed.
func (p *place) gone(ctx context.Context) error {
	select {
	case <-p.left:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.mu.Lock()
	renaming, watching := p.renaming, p.watching
	p.mu.Unlock()
	for _, over := range []chan struct{}{renaming, watching} {
		if over != nil {
			<-over // soon, because the grant and the contender have ended
		}
	}
	select {
	case <-p.removal.Done():
		return p.removal.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// own returns the current path of the contender's znode.
func (p *place) own() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.path
}

// moved reports whether the path of the contender's znode differs from path, because it was
// renamed. It waits for a rename that is in progress.
func (p *place) moved(path string) bool {
	p.mu.Lock()
	renaming := p.renaming
	p.mu.Unlock()
	if renaming != nil {
		<-renaming // at the latest when the contender has left
	}
	return p.own() != path
}

// turn creates and ends the grant according to the states of the contender. It belongs to the
// goroutine that runs the contender.
type turn struct {
	*place
	once bool
	end  context.CancelCauseFunc // of the grant; nil before it exists
}

func (t *turn) changed(s queue.State) {
	if s.Path != "" {
		t.at(s.Path)
	}
	switch {
	case s.Proven && t.end == nil:
		g, end := grant.New(s.Token, s.Deadline)
		t.end = end
		t.granted <- &Hold{t.place, g, end}
	case t.end != nil && s.First && !s.Proven:
		// The grant must not become valid again, because other clients may acquire the lock now.
		t.lose(zkerror.ErrLeaseExpired)
	case t.end != nil && s.Path == "":
		t.lose(s.Err)
	case t.once && s.Predecessor != "":
		t.stop(ErrHeld)
	}
}

// at records the path of the contender's znode.
func (t *turn) at(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.path == "" && t.entered != nil {
		close(t.entered)
	}
	t.path = path
}

// lose ends the grant, and makes the contender leave.
func (t *turn) lose(err error) {
	if !errors.Is(err, ErrReleased) {
		err = zkerror.Refine(err)
	}
	t.end(err)
	t.stop(err)
}
