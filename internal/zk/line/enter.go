package line

import (
	"context"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// enter creates the own znode and takes a first look around.
//
// The reply to a create may get lost after the ensemble has carried it out. A
// znode that nobody knows of would then hold up the line for as long as the
// session lives. So each create carries a GUID of its own in the name; after a
// failure that leaves the outcome open, the line is searched for it, and every
// later listing is (look.go), because a server that lags behind may show the
// znode late. Only a znode owned by the session of now is used: one of a dying
// session would go with it (CURATOR-498).
func (p *place) enter(ctx context.Context) error {
	if err := p.settle(ctx); err != nil {
		return err
	}
	return p.look(ctx)
}

// settle creates until there is an own znode, whose number must tell its place.
func (p *place) settle(ctx context.Context) error {
	// The limit's context is made when the connection is found down, not
	// before: one that has had a child keeps memory for others.
	limited, stop := ctx, func() {}
	defer func() { stop() }()
	limit := func() {
		if limited == ctx && p.Patience > 0 {
			limited, stop = p.limit(ctx)
		}
	}
	for p.name == "" {
		if !p.sub.State().Up {
			limit()
		}
		err := p.create(limited)
		if p.MakeDir != nil && isNoNode(err) {
			if err = p.MakeDir(limited); err == nil {
				continue
			}
		}
		if request.Transient(err) {
			limit()
			if err = p.again(limited, err); err == nil {
				err = p.adopt(limited)
			}
		}
		if err != nil {
			return err
		}
	}
	if p.Naming.exhausted(p.name) {
		return zkerror.ErrNodeExhausted
	}
	return nil
}

// limit derives a context that ends, with zkerror.ErrUnreachable, when the connection
// has been down for Patience. stop must be called.
func (p *place) limit(ctx context.Context) (limited context.Context, stop func()) {
	limited, cancel := context.WithCancelCause(ctx)
	watching := request.Start(func() (struct{}, error) { return struct{}{}, p.giveUp(limited, cancel) })
	return limited, func() {
		cancel(nil)
		<-watching
	}
}

// giveUp calls end when the connection has been down for Patience. A server that
// is only slow is none that does not answer.
func (p *place) giveUp(ctx context.Context, end context.CancelCauseFunc) error {
	for up := time.Now(); ; {
		if err := request.Pause(ctx, p.Patience/16); err != nil {
			return err
		}
		switch {
		case p.sub.State().Up:
			up = time.Now()
		case time.Since(up) >= p.Patience:
			end(zkerror.ErrUnreachable)
		}
	}
}

// create sends one create with a new name and waits for the answer.
func (p *place) create(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	prefix, flags := p.prefix(), int32(zk.FlagEphemeral|zk.FlagSequence)
	if p.Naming == KazooLease {
		flags = zk.FlagEphemeral
	}
	p.prefixes = append(p.prefixes, prefix)
	p.sent = time.Now()
	before := p.Conn.SessionID()
	p.creating = ask(p, func() (string, error) {
		if p.plain != nil {
			return p.createPlain(prefix)
		}
		return p.Conn.Create(p.pathOf(prefix), p.Data, flags, p.ACL)
	})
	select {
	case answer := <-p.creating:
		p.creating = nil
		switch {
		case answer.Err == nil:
			p.setOwn(path.Base(answer.Value))
			p.prefixes[len(p.prefixes)-1] = p.name[:len(prefix)] // kept once
			// From here on the session's end is known for what it is, even
			// before the znode was read. In which of two it was created
			// only the znode tells.
			if after := p.Conn.SessionID(); after == before {
				p.session = before
			}
		case !request.Transient(answer.Err):
			p.prefixes = p.prefixes[:len(p.prefixes)-1]
		}
		if p.MakeDir != nil {
			return answer.Err
		}
		// The line's node was there when the candidate was made.
		return p.lineGone(answer.Err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// adopt searches the line for what creates without an answer have left. It
// takes the first such znode of the current session as the own one and deletes
// the others.
func (p *place) adopt(ctx context.Context) error {
	p.sent = time.Time{} // whichever create it was
	left, err := p.leftovers(ctx)
	switch {
	case isNoNode(err) && p.MakeDir != nil:
		return nil // nothing was created
	case err != nil:
		return p.lineGone(err)
	}
	for _, name := range left {
		stat, err := p.stat(ctx, name)
		switch {
		case err != nil:
			return err
		case stat == nil:
		case p.name == "" && stat.EphemeralOwner == p.Conn.SessionID():
			p.setOwn(name)
			p.session = stat.EphemeralOwner
		default:
			if err := p.delete(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// leftovers lists the znodes that this contender has created, the first in
// line first, as of a time after the call: without Sync a server that lags
// behind would not show the newest.
func (p *place) leftovers(ctx context.Context) (names []string, err error) {
	if p.plain != nil {
		return p.searchPlain(ctx)
	}
	l, err := request.Read(ctx, p.Conn, func() (listing, error) {
		if _, err := p.Conn.Sync(p.Dir); err != nil {
			return listing{}, err
		}
		return p.list()
	})
	contenders, others, _ := Order(l.children, p.EndMarker)
	for _, name := range append(contenders, others...) { // kazoo's leases have no number
		if hasAnyPrefix(name, p.prefixes) {
			names = append(names, name)
		}
	}
	return names, err
}

// stat returns a znode's Stat, nil when there is none.
func (p *place) stat(ctx context.Context, name string) (*zk.Stat, error) {
	return statOf(ctx, p.Conn, p.pathOf(name))
}

func statOf(ctx context.Context, conn *zk.Conn, path string) (*zk.Stat, error) {
	return request.Read(ctx, conn, func() (*zk.Stat, error) {
		exists, stat, err := conn.Exists(path)
		if !exists {
			stat = nil
		}
		return stat, err
	})
}

// delete removes a znode of this contender. That it is gone already is fine.
func (p *place) delete(ctx context.Context, name string) error {
	err := request.Retry(ctx, p.Conn, func() error { return p.Conn.Delete(p.pathOf(name), -1) })
	if isNoNode(err) {
		return nil
	}
	return err
}
