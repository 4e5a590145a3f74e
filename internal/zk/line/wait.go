package line

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
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
	p.reset = false
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
		case event := <-p.ownWatch.C():
			return p.ownChanged(ctx, p.ownWatch.Take(event))
		case event := <-p.predecessorWatch.C():
			return p.predecessorChanged(ctx, p.predecessorWatch.Take(event))
		case <-p.doubt:
			return p.recheck(ctx)
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

// content is what was read of the predecessor.
type content struct {
	version int32
	owner   int64
}

// watchPredecessor sets the watch on the predecessor; gone says that there was
// none any more, and that the line has been looked at again. Reading the data
// leaves no watch behind where there is no znode; asking whether it exists
// would (CURATOR-107).
func (p *place) watchPredecessor(ctx context.Context) (gone bool, err error) {
	path, name := p.predecessorPath, p.around.predecessor
	if p.mayBeForeign(name) {
		// First without a watch, which could not be removed.
		stat, err := p.stat(ctx, name)
		if err != nil {
			return false, err
		}
		if stat != nil && !p.contends(name, stat.EphemeralOwner) {
			return true, p.skipPredecessor(ctx)
		}
	}
	for {
		select {
		case w := <-p.readWatched(path, watch.Data):
			switch {
			case w.Err == nil && !p.contends(name, w.Value.Stat.EphemeralOwner):
				return true, p.skipPredecessor(ctx)
			case w.Err == nil:
				p.predecessorWatch = w.Value.Watch
				p.predecessorSeen = content{w.Value.Stat.Version, w.Value.Stat.EphemeralOwner}
				p.noteDoubt(w.Value)
				p.expectFarewell()
				p.watched(path)
				// Whatever has been written may have been written since the
				// listing, and may have been the mark of the line's end.
				p.unsettled = (p.verified || p.Room != nil) && p.predecessorSeen.version > 0
				return false, nil
			case isNoNode(w.Err):
				p.vacated()
				return true, p.look(ctx)
			case errors.Is(w.Err, zk.ErrNoAuth):
				return false, fmt.Errorf("read predecessor %s: %w", path, w.Err)
			}
			if err := p.again(ctx, w.Err); err != nil {
				return false, err
			}
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// mayBeForeign reports whether name is of a kind that neither the known libraries use
// nor this contender itself does.
func (p *place) mayBeForeign(name string) bool {
	prefix, plain := p.Naming.plain()
	return p.Room == nil && !Recognized(name) && !(plain && strings.HasPrefix(name, prefix))
}

// skipPredecessor looks again, without a predecessor that is no contender.
func (p *place) skipPredecessor(ctx context.Context) error {
	p.Log.Warn("ignoring a child that is named like a candidate but is not ephemeral", "path", p.predecessorPath)
	p.skip(p.around.predecessor)
	return p.look(ctx)
}

// predecessorChanged reacts to the predecessor's watch, which fires for its end
// and for a change of its data. The latter is a hint that it is the first now
// (first.go), or comes with the mark of the line's end, and is reason enough to
// look, with the watch set before.
func (p *place) predecessorChanged(ctx context.Context, event zk.Event) error {
	p.predecessorWatch = nil
	switch {
	case errors.Is(event.Err, zk.ErrClosing):
		return zkerror.ErrConnClosed
	case event.Type == zk.EventNotWatching:
		return zkerror.ErrSessionExpired
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

// recheck sets the watches again, and reads what they are on, after the connection was
// down: the client library sets its watches again once, and not if that fails. The second
// in line also lists the line, because its knowledge is void, and so does a contender
// that watches all of it.
func (p *place) recheck(ctx context.Context) error {
	version := p.predecessorSeen.version
	p.ownWatch, p.predecessorWatch, p.doubt, p.reset = nil, nil, nil, true
	switch {
	case p.verified:
		return p.look(ctx)
	case p.Room != nil && (p.crowd.next || p.crowd.maybe):
		return p.lookAndWatch(ctx)
	}
	p.epoch = p.sub.State().Epoch
	if err := p.readOwn(ctx); err != nil {
		return err
	}
	if gone, err := p.watchPredecessor(ctx); gone || err != nil {
		return err
	}
	if p.Room != nil && p.predecessorSeen.version != version {
		return p.look(ctx) // it was written in between
	}
	return nil
}
