package line

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
)

// beFirst is the first in line until it loses its place. It asks nothing of the
// line any more: only the own znode's end and the session's life matter.
func (p *place) beFirst(ctx context.Context) error {
	p.prove()
	told, stop := p.tellFollower(ctx)
	defer stop()
	hinted, lapses := false, p.sub.State().Lapses
	for {
		ownWatch, renames := p.ownWatch, p.Renames
		var renaming <-chan request.Answer[renamed]
		if p.renaming != nil {
			// It fires the watch itself.
			ownWatch, renames, renaming = nil, nil, p.renaming.answer
		}
		// Where an end of the place is already known it comes before a claim:
		// the server tells of deletions in their order.
		select {
		case event := <-ownWatch.C():
			if err := p.ownEvent(ctx, ownWatch.Take(event)); err != nil {
				return err
			}
		default:
		}
		state := p.sub.State()
		if err := p.over(state); err != nil {
			return err
		}
		if state.Missing && p.renaming == nil {
			return p.deleted(ctx)
		}
		if state.Lapses != lapses {
			lapses = state.Lapses
			p.tell(State{Path: p.path(), First: true, Session: p.session, Token: p.czxid})
		}
		p.tell(State{Path: p.path(), First: true, Proven: state.Proven, Session: p.session, Token: p.czxid, Deadline: p.sub.Deadline})
		if state.Proven && !hinted && p.Hint {
			hinted = true
			p.hint()
		}
		select {
		case event := <-ownWatch.C():
			if err := p.ownEvent(ctx, ownWatch.Take(event)); err != nil {
				return err
			}
			// Without the watch the checks tell of the znode's end.
		case r := <-renames:
			p.startRenaming(ctx, r)
		case a := <-renaming:
			if err := p.finishRenaming(ctx, a); err != nil {
				return err
			}
		case a := <-told:
			told = nil
			if err := p.followerTold(ctx, a.Err); err != nil {
				return err
			}
		case <-p.sub.Changed():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hint tells the direct follower that its predecessor is the first now, by
// writing the own znode's data once more, which the follower watches. It is a
// hint and nothing depends on it: without it the follower looks when its turn
// comes, one round trip later.
//
// Curator's LeaderLatch loses its watch by a change of data and would wait for
// ever. So the write is bound, in one transaction, to the existence of a direct
// follower whose name shows that it is one of ours: while that one stands there
// nobody else watches this znode.
func (p *place) hint() {
	// The place may be left, and forgets its name, while this is under way.
	name, own := p.name, p.path()
	follower, listed, view := p.around.follower, p.around.listed, p.view()
	go func() {
		if !listed {
			children, _, err := request.Children(p.Conn, p.Dir)
			if err != nil {
				return
			}
			follower = view.surroundingsOf(name, children).follower
		}
		if follower == "" || !ours(follower) {
			return
		}
		_, err := p.Conn.Multi(
			&zk.CheckVersionRequest{Path: p.pathOf(follower), Version: -1},
			&zk.SetDataRequest{Path: own, Data: p.Data, Version: -1},
		)
		if err != nil {
			p.Log.Debug("wake-up write to the follower failed", "follower", follower, "err", err)
		}
	}()
}

// prove keeps up a lease; sent is the create's, which proves as much as a check
// where it has only just been sent.
func (p *place) prove() {
	if !p.proving {
		p.proving = true
		p.sub.Prove(p.path(), p.sent)
	}
}

func (p *place) rest() {
	if p.proving {
		p.proving = false
		p.sub.Rest()
	}
}
