package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/counter"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

// Share is the set of parts of one member. Its methods may be called from any goroutine. It
// must be closed.
type Share struct {
	partitioner *Partitioner
	member      *Membership
	grace       time.Duration

	stop  context.CancelCauseFunc
	parts chan *Part
	ended chan struct{} // closed when all goroutines have ended
	err   error         // before ended: why
	left  error         // before ended: why it is not certain that nothing is left
}

// Parts returns a channel that delivers each part of this member when its lock was granted.
// A part that is lost, or assigned to another member, before it is received is not
// delivered. If a part has ended and is granted to this member again, it is delivered
// again. All calls return the same channel, which is closed when the Share has ended and
// holds no parts any more.
func (s *Share) Parts() <-chan *Part { return s.parts }

// Status returns the status channel of the membership; see [Persistent.Status].
func (s *Share) Status() <-chan Presence { return s.member.Status() }

// ID returns the ID of the member.
func (s *Share) ID() string { return s.member.ID() }

// Done returns a channel that is closed when the Share has ended.
func (s *Share) Done() <-chan struct{} { return s.ended }

// Err returns nil until the Share has ended, and then the reason: [ErrClosed],
// [recipes.ErrConnClosed], [recipes.ErrPermission], [counter.ErrFormat] if another program
// has overwritten the parts, or another error of ZooKeeper.
func (s *Share) Err() error {
	select {
	case <-s.ended:
		return s.err
	default:
		return nil
	}
}

// Close leaves, so that other members take over the parts. All parts become wanted, and
// Close waits until they are released or the grace period is over. It returns nil when no
// part is held and the removal of the member's znode is confirmed, and otherwise an error
// that wraps [recipes.ErrUnconfirmed]; the remaining work then continues in the background.
// Close may be called repeatedly.
func (s *Share) Close(ctx context.Context) error {
	s.stop(ErrClosed)
	var err error
	select {
	case <-s.ended:
		err = s.left
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil || errors.Is(err, recipes.ErrUnconfirmed) {
		return err
	}
	return recipe.Fail("leave", s.partitioner.at.Path, fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, err))
}

func newShare(p *Partitioner, member *Membership, grace time.Duration) *Share {
	ctx, stop := context.WithCancelCause(context.Background())
	s := &Share{
		partitioner: p, member: member, grace: grace,
		stop: stop, parts: make(chan *Part), ended: make(chan struct{}),
	}
	d := divider{
		Share: s, views: p.group.changes(ctx, true), lists: p.parts.Changes(ctx),
		contending: map[string]context.CancelFunc{}, over: make(chan end),
	}
	go d.run(ctx)
	return s
}

// divider is the goroutine of a Share. It decides for which parts there is a contender.
type divider struct {
	*Share
	views   <-chan View
	lists   <-chan counter.Change[[]string]
	members []string
	list    []string

	contending map[string]context.CancelFunc // by part, until its contender has ended
	over       chan end
}

// end is that of a contender.
type end struct {
	part string
	err  error // nil where it was told to
}

func (d *divider) run(ctx context.Context) {
	reason := d.divide(ctx)
	d.stop(reason) // releases the context
	// The others are to stand in line while this member finishes.
	leaving := request.Start(func() (struct{}, error) {
		return struct{}{}, d.member.Close(context.Background())
	})
	for len(d.contending) > 0 {
		delete(d.contending, (<-d.over).part)
	}
	d.left = (<-leaving).Err
	for range d.views { // closed when its goroutine ends
	}
	for range d.lists {
	}
	d.err = reason
	close(d.parts)
	close(d.ended)
}

// divide goes on until the context ends or something ends the Share, and returns what.
func (d *divider) divide(ctx context.Context) error {
	for {
		d.assign(ctx)
		select {
		case v := <-d.views:
			if v.Err != nil {
				return v.Err
			}
			d.members = d.members[:0]
			for _, m := range v.Members {
				d.members = append(d.members, m.ID)
			}
		case l := <-d.lists:
			if l.Err != nil {
				return l.Err
			}
			// Others may have written them, in any order.
			d.list = slices.DeleteFunc(slices.Sorted(slices.Values(l.Value)), func(part string) bool { return part == "" })
		case e := <-d.over:
			delete(d.contending, e.part)
			if e.err != nil {
				return e.err
			}
		case <-d.member.Done():
			return d.member.Err()
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// assign has a contender for each part that is this member's, and tells those that are
// not to stop. One that has been told is waited for before there is another.
func (d *divider) assign(ctx context.Context) {
	for part, stop := range d.contending {
		if _, listed := slices.BinarySearch(d.list, part); !listed || Owner(part, d.members) != d.ID() {
			stop()
		}
	}
	for _, part := range d.list {
		if d.contending[part] == nil && Owner(part, d.members) == d.ID() {
			ctx, stop := context.WithCancel(ctx)
			d.contending[part] = stop
			go func() {
				err := d.contend(ctx, part)
				stop()
				d.over <- end{part, err}
			}()
		}
	}
}

// again is the time between the end of a grant and the next try.
const again = 500 * time.Millisecond

// contend takes the part's lock, again when it is lost, until the context ends.
func (d *divider) contend(ctx context.Context, part string) error {
	p := d.partitioner
	options := []recipes.Option{recipes.WithACL(p.at.ACL), recipes.WithLayout(p.at.Layout), recipes.WithLogger(p.at.Log)}
	if p.at.Timeout > 0 {
		options = append(options, recipes.WithSessionTimeout(p.at.Timeout))
	}
	if p.at.CheckInterval > 0 {
		options = append(options, recipes.WithCheckInterval(p.at.CheckInterval))
	}
	mutex, err := lock.NewMutex(p.at.Conn, p.lockPath(part), options...)
	if err != nil {
		return err
	}
	for {
		hold, err := mutex.Lock(ctx)
		switch {
		case err == nil:
			d.use(ctx, &Part{Hold: hold, name: part, wanted: make(chan struct{})})
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, recipes.ErrSessionExpired), errors.Is(err, recipes.ErrDeleted), errors.Is(err, recipes.ErrLeaseExpired):
		default:
			return err
		}
		if request.Pause(ctx, again) != nil {
			return nil
		}
	}
}

// use hands the part to the user, and returns when it is released for certain.
func (d *divider) use(ctx context.Context, part *Part) {
	select {
	case d.parts <- part:
		select {
		case <-part.Done():
		case <-ctx.Done():
			close(part.wanted)
			limit := time.NewTimer(d.grace)
			defer limit.Stop()
			select {
			case <-part.Done():
			case <-limit.C:
				part.revoked.Store(part.Hold.Err() == nil)
			}
		}
	case <-part.Done():
	case <-ctx.Done():
	}
	if err := part.Release(context.Background()); err != nil {
		p := d.partitioner
		p.at.Log.Warn("could not release part", "path", p.at.Path, "part", part.name, "err", err)
	}
}
