package line

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// Room makes a line that of a semaphore: a contender's turn has come when what it
// and those ahead of it take is within a limit.
type Room struct {
	// Weight is how much the contender takes. More than 1 is written in its
	// name, with CuratorLease only.
	Weight int
	// Limit counts where the line's node has no limit of its own (limit.go).
	Limit int
	// Everybody counts all children of the node, whatever they are and wherever
	// they stand, each for one, against Limit. It is for leases that are taken
	// under a mutex, as Curator and kazoo do.
	Everybody bool
}

// crowd is what a listing says of the room.
type crowd struct {
	fits     bool // the turn has come
	over     bool // the limit is below the own weight
	followed bool // somebody stands directly behind
	// next: all ahead hold, so that anybody's departure may bring the turn;
	// maybe: that cannot be ruled out.
	next, maybe bool
}

// crowdOf looks around own in a listing. predecessor is the last of those ahead, and
// what begins with one of prefixes are the contender's own strays, which do not
// count.
func (r *Room) crowdOf(own, predecessor string, children, prefixes []string) crowd {
	if r.Everybody {
		taken := 0
		for _, name := range children {
			if name == own || !hasAnyPrefix(name, prefixes) {
				taken++
			}
		}
		fits := taken <= r.Limit
		return crowd{fits: fits, next: !fits}
	}
	limit, changed, stored := StoredLimit(children)
	if !stored {
		limit = r.Limit
	}
	ownSequence, _ := sequenceOf(own)
	ahead, followed := int64(0), false
	for _, name := range children {
		sequence, ok := sequenceOf(name)
		switch {
		case !ok, name == own, hasAnyPrefix(name, prefixes):
		case before(sequence, ownSequence):
			ahead += int64(weightOf(name))
		default:
			followed = true
		}
	}
	c := crowd{
		fits: ahead+int64(r.Weight) <= int64(limit),
		over: r.Weight > limit,
		next: ahead <= int64(limit), followed: followed,
	}
	if predecessor != "" && !c.next {
		// Whoever is beyond the limit waits, and writes when it is let in; unless
		// it was let in by an earlier limit, with nobody behind it to write for.
		sequence, _ := sequenceOf(predecessor)
		c.maybe = stored && before(sequence, changed) || !ours(predecessor)
	}
	return c
}

// Taken is how much the contenders in a listing hold or wait for.
func Taken(children []string) (taken int64) {
	for _, name := range children {
		if _, ok := sequenceOf(name); ok {
			taken += int64(weightOf(name))
		}
	}
	return taken
}

// waitForRoom waits until something may have changed for this contender, and
// returns nil with what is known of the line renewed.
//
// Behind somebody who waits it watches that one, who writes its own znode when it
// is let in (tellFollower). Otherwise everybody's departure counts, and it watches
// the children of the line's node.
func (p *place) waitForRoom(ctx context.Context) error {
	p.tellWaiting()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	everybody := p.crowd.next || p.crowd.maybe
	switch {
	case everybody && p.crowdWatch == nil:
		return p.lookAndWatch(ctx)
	case !everybody && p.predecessorWatch == nil:
		if gone, err := p.watchPredecessor(ctx); gone || err != nil {
			return err
		}
	}
	p.reset = false
	if p.crowd.next {
		p.prove()
	} else {
		p.rest()
	}
	for {
		if changed, err := p.checkState(ctx); changed || err != nil {
			return err
		}
		p.tellWaiting()
		if p.unsettled {
			p.unsettled = false
			return p.look(ctx)
		}
		select {
		case event := <-p.ownWatch.C():
			return p.ownChanged(ctx, p.ownWatch.Take(event))
		case event := <-p.crowdWatch.C():
			event = p.crowdWatch.Take(event)
			p.crowdWatch = nil
			if err := watchEnded(event); err != nil {
				return err
			}
			if !everybody {
				continue // it was set earlier, and says nothing new
			}
			return p.lookAndWatch(ctx)
		case <-p.doubt:
			return p.recheck(ctx)
		case event := <-p.predecessorWatch.C():
			event = p.predecessorWatch.Take(event)
			p.predecessorWatch = nil
			if err := watchEnded(event); err != nil {
				return err
			}
			if event.Type == zk.EventNodeDeleted {
				return p.look(ctx)
			}
			p.prove() // side by side with the listing: the predecessor may hold now
			return p.lookAndWatch(ctx)
		case <-p.sub.Changed():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watchEnded says whether an event is no change but the end of the watch.
func watchEnded(event zk.Event) error {
	switch {
	case errors.Is(event.Err, zk.ErrClosing):
		return zkerror.ErrConnClosed
	case event.Type == zk.EventNotWatching:
		return zkerror.ErrSessionExpired
	}
	return nil
}

// lookAndWatch is look with a watch on the children of the line's node.
func (p *place) lookAndWatch(ctx context.Context) error {
	return p.lookBy(ctx, true)
}

func (p *place) listAndWatch(q watch.Query) (listing, error) {
	found, err := watch.Try(p.Conn, q)
	return listing{found.Children, found.Stat, found}, err
}

// tellFollower tells the direct follower, by writing the own znode's data once
// more, that this contender is let in: nothing else would. It is repeated until it
// is confirmed or stop was called, which waits for its end. The answer comes over
// the channel; nil where there is nobody to tell.
func (p *place) tellFollower(ctx context.Context) (told <-chan request.Answer[struct{}], stop func()) {
	if p.Room == nil || !p.crowd.followed {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	conn, own, data := p.Conn, p.path(), p.Data // the place may be left meanwhile
	done := make(chan struct{})
	told = request.Start(func() (struct{}, error) {
		defer close(done)
		return struct{}{}, request.Retry(ctx, conn, func() error {
			_, err := conn.Set(own, data, -1)
			return err
		})
	})
	return told, func() {
		cancel()
		<-done
	}
}

// followerTold says what the outcome of tellFollower means for the place. A holder
// that is not allowed to tell gives up: others would wait beside free leases. What
// else can go wrong is the end of the own znode, which wakes the follower too.
func (p *place) followerTold(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || isNoNode(err) || errors.Is(err, zkerror.ErrConnClosed) {
		return nil
	}
	p.Log.Error("cannot notify the follower", "path", p.path(), "err", err)
	return err
}
