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
	ctx     context.Context         // is done when the contender is to leave
	stop    context.CancelCauseFunc // leave, for a reason
	granted chan *Hold              // capacity 1
	entered chan struct{}           // closed with the first path; nil if nobody asks
	left    chan struct{}           // closed when the goroutine has ended
	beside  []string                // other znodes without which there is no grant; set before it

	member *queue.Member
	delay  *delayed // nil without a lock-delay
	turn   turn
	// resume starts the goroutine of a hold whose contender has not got one yet. It is nil if
	// the goroutine was started before the grant, and does not change after the grant.
	resume *time.Timer

	mu       sync.Mutex
	path     string        // of the own znode
	renaming chan struct{} // closed when a rename is over (downgrade.go); nil before one
	watching chan struct{} // closed when nobody waits to be revoked any more; nil before
	revoked  chan struct{} // closed when asked to release; nil before anybody asks for it

	// Written by the goroutine before left is closed.
	err     error
	removal *queue.Removal
}

// contest is what one contender wants.
type contest struct {
	cfg   *queue.Config
	once  bool          // not to wait for others: ErrHeld
	delay time.Duration // after an abnormal loss
	asks  bool          // somebody asks for the position
}

// errGivenUp is why a place is left that nobody waits for any more. The cause of the
// context's end is not: it may be the end of another hold.
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
// It needs its own goroutine only if the hold lasts: most holds are over before.
func (c contest) waitHere() (*Hold, error) {
	p := c.prepare()
	if p.member.RunUntil(p.ctx, func() bool { return len(p.granted) > 0 }) {
		p.leave()
		if len(p.granted) == 0 {
			return nil, p.err
		}
		return <-p.granted, nil // it is lost already
	}
	h := <-p.granted
	p.resume = time.AfterFunc(contender.OwnDelay, p.run)
	return h, nil
}

// start runs the contender on a goroutine of its own.
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

// leave removes what a contender that has left has created.
func (p *place) leave() {
	defer close(p.left)
	p.removal, p.err = p.member.Leave(p.ctx)
	p.stop(p.err) // releases the context
	if p.delay != nil {
		p.delay.wait()
	}
}

// resumeNow starts the goroutine of a hold that has not got one yet, or runs the contender on
// the caller's goroutine.
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

// gone waits until it is certain that nothing is left of the contender, or until
// nothing more can be done for that.
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
			<-over // soon, after the end of the grant and of the place
		}
	}
	select {
	case <-p.removal.Done():
		return p.removal.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// own returns the path of the own znode at this moment.
func (p *place) own() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.path
}

// moved reports whether the own znode is another one than path by now. It waits
// for a rename that is under way.
func (p *place) moved(path string) bool {
	p.mu.Lock()
	renaming := p.renaming
	p.mu.Unlock()
	if renaming != nil {
		<-renaming // at the latest when the place is left
	}
	return p.own() != path
}

// turn turns what the line reports into a grant and its end. It belongs to the
// goroutine in queue.Stand.
type turn struct {
	*place
	once bool
	end  context.CancelCauseFunc // of the grant; nil before there is one
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
		// Others may rely on its end from now on: it does not come back.
		t.lose(zkerror.ErrLeaseExpired)
	case t.end != nil && s.Path == "":
		t.lose(s.Err)
	case t.once && s.Predecessor != "":
		t.stop(ErrHeld)
	}
}

// at notes where the own znode is.
func (t *turn) at(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.path == "" && t.entered != nil {
		close(t.entered)
	}
	t.path = path
}

// lose ends the grant, and has the contender leave.
func (t *turn) lose(err error) {
	if !errors.Is(err, ErrReleased) {
		err = zkerror.Refine(err)
	}
	t.end(err)
	t.stop(err)
}
