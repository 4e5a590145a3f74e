package line

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// endedLimit is the limit if the queue has ended: the client that has ended it removes the znode
// as well.
const endedLimit = 100 * time.Millisecond

// Removal is the removal of everything that a contender has created.
type Removal struct {
	done chan struct{}
	err  error
}

// Done is closed when the removal is over.
func (r *Removal) Done() <-chan struct{} { return r.done }

// Confirmed reports whether it is certain, at this moment, that nothing of the
// contender is left.
func (r *Removal) Confirmed() bool {
	select {
	case <-r.done:
		return r.err == nil
	default:
		return false
	}
}

// Err is, once the removal is over, why nothing is certain; nil when all is.
func (r *Removal) Err() error { return r.err }

// Join is the removal of everything that several contenders have created.
func Join(removals ...*Removal) *Removal {
	all := &Removal{done: make(chan struct{})}
	go func() {
		defer close(all.done)
		for _, r := range removals {
			<-r.done
			if all.err == nil {
				all.err = r.err
			}
		}
	}()
	return all
}

// leave removes whatever this contender has created, for the reason err. It
// returns as soon as that is confirmed or found impossible, at the latest after
// limit.Confirm; the goroutine that removes then goes on. It uses no context of
// the caller's: that one is usually over. ctx is only asked whether the line has
// ended meanwhile.
func (p *place) leave(ctx context.Context, err error) *Removal {
	p.rest()
	p.ignoreFarewell()
	own := p.path()
	// The cause of a context may be an error of another connection or place, so it says
	// nothing about this znode.
	callers := ctx.Err() != nil && errors.Is(context.Cause(ctx), err)
	r := &Removal{done: make(chan struct{})}
	remove := func() {
		defer p.bury()
		defer close(r.done)
		defer p.sub.Close()
		defer p.leavePlain()
		if r.err = p.remove(err, callers); r.err != nil {
			p.Log.Warn("could not remove the znode", "path", own, "err", r.err)
		}
	}
	if p.Alone && callers {
		remove()
		return r
	}
	go remove()
	wait := limit.Confirm
	if errors.Is(err, zkerror.ErrElectionOver) {
		wait = endedLimit
	}
	limit := time.NewTimer(wait)
	defer limit.Stop()
	if !errors.Is(err, zkerror.ErrElectionOver) && ctx.Err() == nil {
		// Somebody may end the line while this one leaves it for another
		// reason, and has waited long enough by then.
		stop := context.AfterFunc(ctx, func() {
			if errors.Is(context.Cause(ctx), zkerror.ErrElectionOver) {
				limit.Reset(endedLimit)
			}
		})
		defer stop()
	}
	select {
	case <-r.done:
	case <-limit.C:
		p.Log.Warn("removal of the znode is not confirmed yet: retrying", "path", own)
	}
	return r
}

// remove returns nil when it is certain that nothing of this contender is left. reason is why the
// place has ended; callers means that it is the cause of the caller's context.
func (p *place) remove(reason error, callers bool) error {
	if p.creating != nil {
		// Its answer decides; it comes when the connection is back.
		answer := <-p.creating
		switch {
		case answer.Err == nil:
			p.setOwn(path.Base(answer.Value))
		case !request.Transient(answer.Err):
			p.prefixes = p.prefixes[:len(p.prefixes)-1]
		}
	}
	if p.renaming != nil {
		// Whether it is carried out or not: either the deletion of the old znode
		// keeps it from being so, or there is the new one to delete.
		p.renaming.stop()
	}
	// What has vanished is not deleted once more, whatever the reason is called: the
	// owner may be closing the connection (request.AwaitClosing).
	switch {
	case !callers && errors.Is(reason, zkerror.ErrDeleted), p.name != "" && p.vanished == p.path():
		p.forget()
	case !callers && errors.Is(reason, zkerror.ErrSessionExpired):
		p.outlive()
	}
	if len(p.prefixes) > 0 && !callers && errors.Is(reason, zkerror.ErrConnClosed) {
		return reason // no request is answered any more
	}
	ctx := context.Background()
	for len(p.prefixes) > 0 {
		err := p.connected(ctx)
		if err == nil {
			err = p.removeOnce(ctx, reason)
		}
		switch {
		case err == nil, isNoNode(err):
			return nil
		case errors.Is(err, zkerror.ErrSessionExpired):
			p.outlive()
			continue
		}
		if err = p.again(ctx, err); err != nil && !errors.Is(err, zkerror.ErrSessionExpired) {
			return err
		}
	}
	return nil
}

// forget drops the own znode, of which the ensemble has disposed itself. What
// other creates may have left is looked for in any session.
func (p *place) forget() {
	p.session = 0
	if p.name == "" {
		return
	}
	for i, prefix := range p.prefixes {
		if hasAnyPrefix(p.name, []string{prefix}) {
			p.prefixes = append(p.prefixes[:i], p.prefixes[i+1:]...)
			break
		}
	}
	p.setOwn("")
}

// outlive forgets the own znode, whose session is over.
func (p *place) outlive() {
	if p.name != "" {
		p.outlived = p.path()
	}
	p.forget()
}

// bury deletes, in the next session, the own znode of one that is over. Most servers have
// deleted it. But ClickHouse Keeper does not continue sessions: it gives a client that
// reconnects a new one, and keeps what belongs to the old one until its timeout, and
// the other contenders would wait for that long.
//
// It does not wait for the deletion, which goes on for a session timeout at most.
func (p *place) bury() {
	if p.outlived != "" {
		go p.deleteOutlived()
	}
}

func (p *place) deleteOutlived() {
	ctx, cancel := context.WithTimeout(context.Background(), session.Timeout(p.Conn, p.Timeout))
	defer cancel()
	path := p.outlived
	if err := request.Retry(ctx, p.Conn, func() error { return p.Conn.Delete(path, -1) }); err == nil {
		p.Log.Info("deleted the znode of an expired session", "path", path)
	}
}

// removeOnce deletes the own znode, and where creates have gone without an
// answer, everything that they can have left. Its error is of a single try.
func (p *place) removeOnce(ctx context.Context, reason error) error {
	for p.name != "" {
		err := p.deleteOwn(reason)
		switch {
		case err == nil:
			p.sayFarewell()
		case !isNoNode(err):
			return err
		}
		p.forget()
		if r := p.renaming; err != nil && r != nil {
			// It was carried out, so that one is the own znode.
			p.renaming = nil
			p.setOwn(path.Base(r.path))
		}
	}
	if len(p.prefixes) == 0 {
		return nil
	}
	left, err := p.leftovers(ctx)
	if err != nil {
		return err
	}
	for _, name := range left {
		if err := p.delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// deleteOwn deletes the own znode and, in the same transaction, does what goes with it.
// A watch on the predecessor remains, for the next contender on the connection.
func (p *place) deleteOwn(reason error) error {
	if p.Parting != nil {
		if ops := p.Parting(reason); len(ops) > 0 {
			_, err := p.Conn.Multi(append(ops, &zk.DeleteRequest{Path: p.path(), Version: -1})...)
			if err == nil || request.Transient(err) {
				return err
			}
		}
	}
	return p.Conn.Delete(p.path(), -1)
}
