package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/value"
)

// Share is the set of parts of one member. Its methods may be called from any goroutine. It
// must be closed.
type Share struct {
	partitioner *Partitioner
	member      *Membership
	grace       time.Duration

	stop    context.CancelCauseFunc
	parts   chan *Part
	ended   chan struct{} // closed when all goroutines have ended
	err     error         // the reason why the Share has ended; set before ended is closed
	removal error         // why the removal of the member is not confirmed; set before ended is closed
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

// Err returns nil until the Share has ended, and then the reason: [recipes.ErrClosed],
// [recipes.ErrConnClosed], [recipes.ErrPermission], or another error of ZooKeeper. If a part
// cannot be locked, or if another program has overwritten the list of parts, the Share keeps
// its other parts, logs a warning and tries again.
func (s *Share) Err() error {
	select {
	case <-s.ended:
		return s.err
	default:
		return nil
	}
}

// Close leaves, so that other members take over the parts. All parts become wanted, and are
// released in the background, at the end of the grace period at the latest. Close returns nil
// when no part is held and the removal of the member's znode is confirmed. It blocks for at
// most two seconds, and otherwise returns an error that wraps [recipes.ErrUnconfirmed]. It may
// be called repeatedly, for instance after Done is closed.
func (s *Share) Close() error {
	s.stop(recipes.ErrClosed)
	err := limit.ErrConfirm
	if limit.Await(s.ended, time.Now().Add(limit.Confirm)) {
		err = s.removal
	}
	if err == nil {
		return nil
	}
	return s.partitioner.setup.Fail("leave", s.partitioner.setup.Path, fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, err))
}

func newShare(p *Partitioner, member *Membership, grace time.Duration) *Share {
	ctx, stop := context.WithCancelCause(context.Background())
	s := &Share{
		partitioner: p, member: member, grace: grace,
		stop: stop, parts: make(chan *Part), ended: make(chan struct{}),
	}
	d := divider{
		share: s, views: p.group.Watch(ctx), lists: p.parts.Watch(ctx),
		contenders: map[string]context.CancelFunc{}, results: make(chan contenderResult),
	}
	go d.run(ctx)
	return s
}

// divider is the goroutine of a Share. It decides for which parts the Share has a contender.
type divider struct {
	share   *Share
	views   <-chan View
	lists   <-chan value.Change[[]string]
	members []string
	parts   []string // sorted

	contenders map[string]context.CancelFunc // by part, until the contender has ended
	results    chan contenderResult
}

// contenderResult is the result of a contender that has ended.
type contenderResult struct {
	part string
	err  error // nil if its context was done
}

func (d *divider) run(ctx context.Context) {
	s := d.share
	s.err = d.divide(ctx)
	s.stop(s.err) // releases the context
	// The next holders can wait for the locks while this member finishes its work.
	leaving := connection.Start(func() (struct{}, error) {
		return struct{}{}, s.member.keeper.Close(context.Background(), recipes.ErrClosed)
	})
	for len(d.contenders) > 0 {
		delete(d.contenders, (<-d.results).part)
	}
	s.removal = (<-leaving).Err
	for range d.views { // closed when its goroutine ends
	}
	for range d.lists {
	}
	close(s.parts)
	close(s.ended)
}

// divide follows the members and the parts until the context is done or the Share cannot
// continue, and returns the reason.
func (d *divider) divide(ctx context.Context) error {
	for {
		d.updateContenders(ctx)
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
			switch {
			case l.Err != nil:
				return l.Err
			case errors.Is(l.Cause, recipes.ErrPermission):
				return l.Cause
			case l.Cause != nil:
				// Another program has overwritten the parts; other changes may follow.
				d.share.partitioner.setup.Log.Warn("cannot read the parts: keeping the previous ones", "err", l.Cause)
				continue
			}
			// Other programs may have written them, in any order.
			d.parts = slices.DeleteFunc(slices.Sorted(slices.Values(l.Value)), func(part string) bool { return part == "" })
		case r := <-d.results:
			delete(d.contenders, r.part)
			if r.err != nil {
				return r.err
			}
		case <-d.share.member.Done():
			return d.share.member.Err()
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// updateContenders starts a contender for each part that is assigned to this member, and stops
// those of other parts. A second contender for a part is started only after the first one has
// ended.
func (d *divider) updateContenders(ctx context.Context) {
	for part, stop := range d.contenders {
		if _, listed := slices.BinarySearch(d.parts, part); !listed || Owner(part, d.members) != d.share.ID() {
			stop()
		}
	}
	for _, part := range d.parts {
		if d.contenders[part] == nil && Owner(part, d.members) == d.share.ID() {
			ctx, stop := context.WithCancel(ctx)
			d.contenders[part] = stop
			go func() {
				err := d.share.contend(ctx, part)
				stop()
				d.results <- contenderResult{part, err}
			}()
		}
	}
}

// relockPause is the time between the end of a grant and the next attempt to lock the part. The pause
// grows to maxRelockPause while the lock cannot be acquired.
const relockPause, maxRelockPause = 500 * time.Millisecond, time.Minute

// contend locks the part, again whenever the lock is lost, until the context is done or the connection
// is closed.
func (s *Share) contend(ctx context.Context, part string) error {
	setup := s.partitioner.setup
	mutex, err := lock.NewMutex(setup.Conn, s.partitioner.lockPath(part), setup.Settings())
	if err != nil {
		return err
	}
	for pause := relockPause; ; {
		hold, err := mutex.Lock(ctx)
		switch {
		case err == nil:
			pause = relockPause
			s.lendPart(ctx, &Part{Hold: hold, name: part, wanted: make(chan struct{})})
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, recipes.ErrConnClosed):
			return err
		case errors.Is(err, recipes.ErrSessionExpired), errors.Is(err, recipes.ErrDeleted), errors.Is(err, recipes.ErrLeaseExpired):
		default:
			// The reason concerns this part, for instance the ACL of its lock. The member keeps its
			// other parts: if it left, the next member of this part would fail as well.
			pause = min(2*pause, maxRelockPause)
			setup.Log.Warn("cannot lock part: retrying", "path", setup.Path, "part", part, "err", err, "pause", pause)
		}
		if limit.Pause(ctx, pause) != nil {
			return nil
		}
	}
}

// lendPart delivers the part to the user, and returns when it is released.
func (s *Share) lendPart(ctx context.Context, part *Part) {
	select {
	case s.parts <- part:
		select {
		case <-part.Done():
		case <-ctx.Done():
			close(part.wanted)
			grace := time.NewTimer(s.grace)
			defer grace.Stop()
			select {
			case <-part.Done():
			case <-grace.C:
				part.revoked.Store(part.Hold.Err() == nil)
			}
		}
	case <-part.Done():
	case <-ctx.Done():
	}
	err := part.Release()
	for errors.Is(err, limit.ErrConfirm) {
		err = part.Release()
	}
	if err != nil {
		s.partitioner.setup.Log.Warn("could not release part", "path", s.partitioner.setup.Path, "part", part.name, "err", err)
	}
}
