package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/latest"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/internal/zk/znode"
)

// errEarlierSession is the reason why a registration waits for the expiry of a session that
// the connection has lost.
var errEarlierSession = fmt.Errorf("%w: an earlier session of this connection has not expired yet", ErrTaken)

// place is what a registration's goroutine knows of its znode.
type place struct {
	lasting bool // the znode is not ephemeral
	// sessions are those in which a create may have been carried out: a znode of
	// one of them is this registration's, as nobody else of the process creates
	// at this path (claims).
	sessions map[int64]bool
	czxid    int64           // of the znode seen last, 0 for none that is one's own
	watch    <-chan zk.Event // of the znode's end
	stale    bool            // the server that answers next may lag behind
	created  int             // the version that a confirmed create has written, until its czxid is read
	sent     bool            // a create may have been carried out that was not yet seen
	tries    [][]byte        // with what content, of one that is lasting
	late     <-chan request.Answer[*zk.Stat]
	lateMine bool // late is a create
}

const (
	pauseMin = 5 * time.Millisecond
	pauseMax = 5 * time.Second
)

// keep is the registration's goroutine.
func (r *Registration) keep() {
	defer close(r.over)
	defer disclaim(r.at.Conn, r.path)
	defer r.sub.Close()
	defer close(r.status)
	epoch := r.sub.State().Epoch
	for pause := pauseMin; ; {
		begin := time.Now()
		err := zkerror.Refine(r.put())
		var again <-chan time.Time
		switch {
		case r.ctx.Err() != nil:
			r.err = r.remove()
			return
		case errors.Is(err, zkerror.ErrConnClosed):
			r.end(err)
			return
		case err != nil:
			r.at.Log.Warn("registration failed", "path", r.path, "err", err)
			latest.Send(r.status, Status{Pending, err})
			if again = nil; !errors.Is(err, ErrTaken) {
				again = time.After(pause)
				pause = min(2*pause, pauseMax)
			}
		default:
			latest.Send(r.status, Status{Registered, nil})
		}
		if !r.rest(epoch, again, err == nil) {
			return
		}
		if now := r.sub.State().Epoch; now != epoch {
			r.place.stale, epoch = true, now
		}
		if time.Since(begin) > 2*pauseMax {
			pause = pauseMin
		} else if err == nil && r.place.watch == nil {
			// Somebody deletes it time and again.
			_ = request.Pause(r.ctx, pause)
			pause = min(2*pause, pauseMax)
		}
	}
}

// rest waits for a reason to look at the znode again, which is registered or not. It
// returns false when the connection was closed, and the registration has ended.
func (r *Registration) rest(epoch uint64, again <-chan time.Time, registered bool) bool {
	for {
		select {
		case event := <-r.place.watch:
			r.place.watch = nil
			if errors.Is(event.Err, zk.ErrClosing) {
				r.end(zkerror.ErrConnClosed)
				return false
			}
			latest.Send(r.status, Status{State: Pending})
			// The session may be ending because the connection is being closed.
			request.AwaitClosing(r.ctx, r.at.Conn, request.ClosingTime)
			return true
		case <-r.sub.Changed():
			switch state := r.sub.State(); {
			case state.Closed:
				r.end(zkerror.ErrConnClosed)
				return false
			case state.Epoch != epoch:
				if registered {
					latest.Send(r.status, Status{State: Unsure})
				}
				return true
			}
		case <-again:
			return true
		case <-r.wake:
			return true
		case <-r.ctx.Done():
			return true
		}
	}
}

// end ends the registration because the connection was closed.
func (r *Registration) end(err error) {
	r.err = err
	r.noted(0, err)
	latest.Send(r.status, Status{Pending, err})
	r.stop()
}

// put returns nil when the znode is there with the content that is wanted, and
// watched; ErrTaken when somebody else's is, and is watched; or what else keeps it
// from being there.
func (r *Registration) put() error {
	p := &r.place
	for {
		stat, err := r.look()
		if err != nil {
			return r.refuse(err)
		}
		data, version := r.wanted()
		session := r.at.Conn.SessionID()
		switch {
		case stat == nil:
			p.czxid = 0
			err = r.create(data, version)
		case p.lasting && !znode.IsEphemeral(stat),
			!p.lasting && stat.EphemeralOwner == session && p.sessions[session]:
			if p.czxid != stat.Czxid {
				// One that was there before, or whose create has not been confirmed,
				// may have another content.
				p.czxid = stat.Czxid
				r.noted(p.created, nil)
			}
			p.created, p.sent, p.tries = 0, false, nil
			clear(p.sessions)
			p.sessions[session] = true
			if r.has(version) {
				return nil
			}
			err = r.set(data, version, stat)
		case !p.lasting && p.sessions[stat.EphemeralOwner]:
			// This process has lost that session, and the ensemble has not expired it
			// yet (KAFKA-1387). The znode is about to go, and is not deleted: if the
			// request were delayed, it could delete a znode that another process has
			// created in the meantime.
			return r.refuse(errEarlierSession)
		default:
			return r.refuse(ErrTaken)
		}
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		case request.Transient(err):
			p.stale = true
			if request.Closed(r.ctx, r.at.Conn, err) {
				return zkerror.ErrConnClosed
			}
			if err := request.Pause(r.ctx, pauseMin); err != nil {
				return err
			}
		default:
			return r.refuse(err)
		}
	}
}

// refuse tells those who wait for the newest content why they have to.
func (r *Registration) refuse(err error) error {
	if r.ctx.Err() == nil {
		r.mu.Lock()
		written := r.written
		r.mu.Unlock()
		r.noted(written, zkerror.Refine(err))
	}
	return err
}

func (r *Registration) has(version int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written >= version
}

// look reads the znode's Stat, nil where there is none, and sets a watch for its end
// unless there is one: on its children, as it has none, so that a change of the data
// does not count.
func (r *Registration) look() (*zk.Stat, error) {
	p := &r.place
	select {
	case <-p.watch:
		p.watch = nil
	default:
	}
	type answer struct {
		stat  *zk.Stat
		watch <-chan zk.Event
	}
	armed, sync, czxid := p.watch != nil, p.stale, p.czxid
	a, err := request.Read(r.ctx, r.at.Conn, func() (a answer, err error) {
		if sync {
			if _, err = r.at.Conn.Sync(r.path); err != nil {
				return a, err
			}
		}
		sync = true // a further try may go to another server
		if armed {
			exists, stat, err := r.at.Conn.Exists(r.path)
			if err != nil || exists && stat.Czxid == czxid {
				return answer{stat: stat}, err
			}
		}
		_, a.stat, a.watch, err = r.at.Conn.ChildrenW(r.path)
		return a, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		a, err = answer{}, nil
	}
	if err != nil {
		return nil, err
	}
	p.stale = false
	if a.watch != nil || a.stat == nil {
		p.watch = a.watch
	}
	return a.stat, nil
}

// create creates the znode, or its parents if they are missing.
func (r *Registration) create(data []byte, version int) error {
	p := &r.place
	p.sent = true
	if p.lasting {
		p.tries = append(p.tries, data)
	}
	flags := int32(zk.FlagEphemeral)
	if p.lasting {
		flags = zk.FlagPersistent
	}
	_, err := r.write(true, func() (*zk.Stat, error) {
		_, err := r.at.Conn.Create(r.path, data, flags, r.at.ACL)
		return nil, err
	})
	switch {
	case err == nil:
		p.created = version
	case errors.Is(err, zk.ErrNoNode):
		return znode.Make(r.ctx, r.at.Conn, path.Dir(r.path), r.at.ACL, true)
	}
	return err
}

// set writes the content into the znode that was read.
func (r *Registration) set(data []byte, version int, was *zk.Stat) error {
	stat, err := r.write(false, func() (*zk.Stat, error) { return r.at.Conn.Set(r.path, data, was.Version) })
	if err == nil && stat.Czxid == was.Czxid {
		r.noted(version, nil)
	}
	return err
}

// write sends a request that changes something, and waits for its answer. If the
// registration is closed first, remove waits for that.
func (r *Registration) write(create bool, f func() (*zk.Stat, error)) (*zk.Stat, error) {
	if create {
		r.place.mark(r.at.Conn.SessionID())
	}
	answer := request.Start(f)
	select {
	case a := <-answer:
		if create {
			r.place.mark(r.at.Conn.SessionID())
		}
		return a.Value, a.Err
	case <-r.ctx.Done():
		r.place.late, r.place.lateMine = answer, create
		return nil, context.Cause(r.ctx)
	}
}

// mark notes that a create may be carried out in the session. A request that waits for
// a connection may be sent in another session than that of before.
func (p *place) mark(session int64) {
	if session != 0 {
		p.sessions[session] = true
	}
}

// remove deletes the znode if it is this registration's, when nothing is under way any
// more. It goes on until that is certain, or the connection is closed.
func (r *Registration) remove() error {
	p := &r.place
	if p.late != nil {
		<-p.late // it comes when the connection is back, or closed
		if p.lateMine {
			p.mark(r.at.Conn.SessionID())
		}
	}
	if p.czxid == 0 && !p.sent {
		return nil
	}
	ctx := context.Background()
	type answer struct {
		data []byte
		stat *zk.Stat
	}
	for {
		a, err := request.Read(ctx, r.at.Conn, func() (a answer, err error) {
			if _, err = r.at.Conn.Sync(r.path); err != nil {
				return a, err
			}
			a.data, a.stat, err = request.Get(r.at.Conn, r.path)
			return a, err
		})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil
		case err != nil:
			return zkerror.Refine(err)
		case !r.place.owns(a.data, a.stat):
			return nil
		case !p.lasting && a.stat.EphemeralOwner != r.at.Conn.SessionID():
			// It expires with its session: see put.
			if err := r.awaitChange(); err != nil {
				return err
			}
			continue
		}
		// One that has failed is not repeated before the znode is known anew: it may be
		// another's by then.
		_, err = request.Do(ctx, func() (struct{}, error) { return struct{}{}, r.at.Conn.Delete(r.path, a.stat.Version) })
		switch {
		case err == nil, errors.Is(err, zk.ErrNoNode):
			return nil
		case request.Transient(err):
			if request.Closed(ctx, r.at.Conn, err) {
				return zkerror.ErrConnClosed
			}
			if err := request.Pause(ctx, pauseMin); err != nil {
				return err
			}
		case !errors.Is(err, zk.ErrBadVersion):
			return zkerror.Refine(err)
		}
	}
}

// awaitChange waits for an event of the watch on the znode or of the connection, and not
// longer than a session timeout. It returns an error if the connection is closed.
func (r *Registration) awaitChange() error {
	limit := time.NewTimer(r.at.SessionTimeout())
	defer limit.Stop()
	select {
	case <-r.place.watch:
		r.place.watch = nil
	case <-r.sub.Changed():
	case <-limit.C:
	}
	if r.sub.State().Closed {
		return zkerror.ErrConnClosed
	}
	return nil
}

// owns reports whether a znode that was read is this registration's.
func (p *place) owns(data []byte, stat *zk.Stat) bool {
	if !p.lasting {
		return p.sessions[stat.EphemeralOwner] // 0 is never among them
	}
	if znode.IsEphemeral(stat) {
		return false
	}
	if stat.Czxid == p.czxid {
		return true
	}
	for _, try := range p.tries {
		if bytes.Equal(try, data) {
			return true
		}
	}
	return false
}
