package line

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/request"
)

// wait stands behind the predecessor until that one's end, or something else,
// has changed what is known of the line. It returns nil with around renewed.
//
// Newcomers always stand behind, so the set of those ahead only shrinks. Whoever
// has once seen that their predecessor is the first in line is the first as
// soon as that one goes, and need not ask anybody then. The second in line
// therefore keeps a lease in advance.
func (p *place) wait(ctx context.Context) error {
	if p.predecessorWatch == nil {
		if gone, err := p.watchPredecessor(ctx); gone || err != nil {
			return err
		}
	}
	if p.verified {
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
		case event := <-p.ownWatch:
			return p.ownChanged(ctx, event)
		case event := <-p.predecessorWatch:
			return p.predecessorChanged(ctx, event)
		case <-p.sub.Changed():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// checkState reacts to the connection's state; changed says that the line has
// been looked at again for it.
func (p *place) checkState(ctx context.Context) (changed bool, err error) {
	state := p.sub.State()
	if err := p.over(state); err != nil {
		return false, err
	}
	if state.Missing {
		return true, p.deleted(ctx)
	}
	if state.Up && state.Epoch != p.epoch {
		return true, p.recheck(ctx)
	}
	return false, nil
}

//go:noinline // wait's frame is that of a candidate at rest
func (p *place) tellWaiting() {
	p.tell(State{Path: p.path(), Predecessor: p.predecessorPath})
}

// watched is what reading the predecessor, and watching it, returns.
type watched struct {
	seen  content
	watch <-chan zk.Event
}

// content is what was read of the predecessor.
type content struct {
	data    []byte
	version int32
	owner   int64
}

// watchPredecessor sets the watch on the predecessor; gone says that there was
// none any more, and that the line has been looked at again. Reading the data
// leaves no watch behind where there is no znode; asking whether it exists
// would (CURATOR-107).
func (p *place) watchPredecessor(ctx context.Context) (gone bool, err error) {
	path := p.predecessorPath
	for {
		p.arming = ask(p, func() (watched, error) {
			data, stat, watch, err := p.Conn.GetW(path)
			if err != nil {
				return watched{}, err
			}
			return watched{content{data, stat.Version, stat.EphemeralOwner}, watch}, nil
		})
		select {
		case w := <-p.arming:
			p.arming = nil
			switch {
			case w.Err == nil:
				p.predecessorWatch, p.predecessorSeen = w.Value.watch, w.Value.seen
				p.expectFarewell()
				p.watched(path)
				// Whatever has been written may have been written since the
				// listing, and may have been the mark of the line's end.
				p.unsettled = (p.verified || p.Room != nil) && p.predecessorSeen.version > 0
				return false, nil
			case isNoNode(w.Err):
				p.vacated()
				return true, p.look(ctx)
			}
			if err := p.again(ctx, w.Err); err != nil {
				return false, err
			}
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// predecessorChanged reacts to the predecessor's watch, which fires for its end
// and for a change of its data. The latter is a hint that it is the first now
// (first.go), or comes with the mark of the line's end, and is reason enough to
// look, with the watch set before.
func (p *place) predecessorChanged(ctx context.Context, event zk.Event) error {
	p.predecessorWatch = nil
	switch {
	case errors.Is(event.Err, zk.ErrClosing):
		return request.ErrClosed
	case event.Type == zk.EventNotWatching:
		return ErrSessionExpired
	case event.Type == zk.EventNodeDeleted:
		p.vacated()
		if p.predecessorSeen.owner == p.session && !p.heardFarewell(ctx) {
			// The session's end takes both znodes, in any order, and while
			// the owner closes the connection the server still tells of it.
			if p.isNext() {
				switch stat, err := p.stat(ctx, p.name); {
				case err != nil:
					return err
				case stat == nil:
					return p.deleted(ctx)
				}
			}
		}
		if p.isNext() {
			p.around = surroundings{present: true}
			return nil
		}
		p.prove() // side by side with the listing
		return p.look(ctx)
	}
	if gone, err := p.watchPredecessor(ctx); gone || err != nil {
		return err
	}
	p.unsettled = false
	return p.look(ctx)
}

// isNext reports whether the predecessor's end alone makes this contender the
// first. What was verified is void once the connection has been down: the own
// znode may have gone too, and the server tells of both in any order then.
func (p *place) isNext() bool {
	state := p.sub.State()
	return p.verified && state.Up && state.Proven && state.Epoch == p.epoch && state.Session == p.session
}

// ownChanged reacts to the own watch; where that was no end, it looks again and
// so sets the watch anew.
func (p *place) ownChanged(ctx context.Context, event zk.Event) error {
	if err := p.ownEvent(ctx, event); err != nil {
		return err
	}
	return p.look(ctx)
}

// recheck makes sure, after the connection was down, that what the watches are
// on is still there: the client gives up setting them anew when that fails
// once. Only the second in line, whose knowledge is void, lists the line, and whoever
// watches all of it.
func (p *place) recheck(ctx context.Context) error {
	switch {
	case p.verified:
		return p.look(ctx)
	case p.Room != nil && (p.crowd.next || p.crowd.maybe):
		return p.lookAndWatch(ctx)
	}
	p.epoch = p.sub.State().Epoch
	for _, name := range []string{p.name, p.around.predecessor} {
		stat, err := p.stat(ctx, name)
		switch {
		case err != nil:
			return err
		case stat != nil && p.Room != nil && name != p.name && stat.Version != p.predecessorSeen.version:
			return p.look(ctx) // it was written meanwhile
		case stat != nil:
		case name == p.name:
			return p.deleted(ctx)
		default:
			return p.look(ctx)
		}
	}
	return nil
}
