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
		state := p.sub.State()
		if err := p.over(state); err != nil {
			return err
		}
		if state.Missing {
			return p.deleted(ctx)
		}
		if state.Up && state.Epoch != p.epoch {
			return p.recheck(ctx)
		}
		p.tell(State{Path: p.path(), Predecessor: p.pathOf(p.around.predecessor)})
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

// watched is the answer to reading and watching the predecessor.
type watched struct {
	data  []byte
	stat  *zk.Stat
	watch <-chan zk.Event
	err   error
}

// watchPredecessor sets the watch on the predecessor; gone says that there was
// none any more, and that the line has been looked at again. Reading the data
// leaves no watch behind where there is no znode; asking whether it exists
// would (CURATOR-107).
func (p *place) watchPredecessor(ctx context.Context) (gone bool, err error) {
	for {
		read := request.Go(func() watched {
			data, stat, watch, err := p.Conn.GetW(p.pathOf(p.around.predecessor))
			return watched{data, stat, watch, err}
		})
		select {
		case w := <-read:
			switch {
			case w.err == nil:
				p.predecessorWatch = w.watch
				p.predecessorData, p.predecessorVersion = w.data, w.stat.Version
				return false, nil
			case isNoNode(w.err):
				return true, p.look(ctx)
			}
			if err := p.again(ctx, w.err); err != nil {
				return false, err
			}
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// predecessorChanged reacts to the predecessor's watch, which fires for its end
// and for a change of its data. The latter is the hint that it is the first
// now (first.go), and reason enough to look.
func (p *place) predecessorChanged(ctx context.Context, event zk.Event) error {
	p.predecessorWatch = nil
	switch {
	case errors.Is(event.Err, zk.ErrClosing):
		return request.ErrClosed
	case event.Type == zk.EventNotWatching:
		return ErrSessionExpired
	case event.Type == zk.EventNodeDeleted:
		// Where a line is ended its znodes are deleted from the back, and
		// the server tells in that order.
		select {
		case event := <-p.ownWatch:
			return p.ownChanged(ctx, event)
		default:
		}
		if p.isNext() {
			p.around = surroundings{present: true}
			return nil
		}
		p.prove() // side by side with the listing
	}
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

// recheck makes sure, after the connection was down, that the client's watches
// still watch something: the client gives up setting them anew when that fails
// once. Only the second in line, whose knowledge is void, lists the line.
func (p *place) recheck(ctx context.Context) error {
	if p.verified {
		return p.look(ctx)
	}
	p.epoch = p.sub.State().Epoch
	for _, name := range []string{p.name, p.around.predecessor} {
		stat, err := p.stat(ctx, name)
		switch {
		case err != nil:
			return err
		case stat != nil:
		case name == p.name:
			return p.deleted(ctx)
		default:
			return p.look(ctx)
		}
	}
	return nil
}
