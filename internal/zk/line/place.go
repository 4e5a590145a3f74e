// Package line stands in line at a ZooKeeper node: an ephemeral sequential
// znode for each contender, first created, first served, everybody watching
// only their own znode and their immediate predecessor. Elections use it; so
// do the recipes that wait their turn.
//
// Everything about one contender happens on the goroutine that called Stand.
// Requests, which cannot be cancelled, are sent from short-lived goroutines,
// so that the one that owns the contender can always react, unless that one serves
// nobody else (Config.Alone). The files follow a
// contender's way: enter.go creates its znode, look.go finds out who is ahead,
// wait.go stands behind a predecessor, first.go is what the first does, and
// leave.go takes the znode away.
package line

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// ErrOverLimit is the error of a place whose request exceeds [Limit]. The other errors that end a
// place are those of package zkerror, of the context, and of ZooKeeper itself, such as zk.ErrNoAuth.
var ErrOverLimit = errors.New("request exceeds the limit")

// Config says where to stand, and how.
type Config struct {
	Conn    *zk.Conn
	Dir     string // the line's node
	Naming  Naming
	Data    []byte
	ACL     []zk.ACL
	Timeout time.Duration // that the user states, 0 for what is granted
	// CheckInterval is the time between the checks that renew a lease, 0 for the default.
	CheckInterval time.Duration

	// DirCzxid identifies Dir, if it is not 0: another node at the same path is
	// another line then.
	DirCzxid int64
	// DirSession is the session in which Dir was seen, if it is not 0. In another session
	// its absence does not show that a client has deleted it.
	DirSession int64
	// MakeDir creates Dir where it is missing. Without it a missing Dir is the
	// end of the line.
	MakeDir func(ctx context.Context) error
	// EndMarker, if any, is a child of Dir that says that the line has ended.
	EndMarker string
	// Blocks says whom of those ahead to wait for, by the znode's name; nil for
	// all of them.
	Blocks func(name string) bool
	// Yields says at whose place, by the znode's name, another contender may stand
	// once they go, so that their end proves nothing (rename.go); nil for nobody's.
	Yields func(name string) bool
	// Renames has the first take another name, for each element.
	Renames <-chan Rename
	// Parting returns what is done in one transaction with the deletion of the own
	// znode, given why it is left; where that fails the znode is deleted alone.
	Parting func(reason error) []any
	// Room, if any, lets in more than the first.
	Room *Room
	// Hint has the first tell its follower that it is the first. That costs a
	// write, and saves the follower a round trip later.
	Hint bool
	// Patience is how long ZooKeeper may be out of reach while entering, or
	// while finding out why the own znode is gone; 0 for ever.
	Patience time.Duration
	Log      *slog.Logger
	// Alone: nobody but this place needs the goroutine of Stand, so that requests may
	// block it, and one that ended the context does not wait for Stand within a time.
	// Each request then does without a goroutine of its own, and whoever is next
	// has its turn sooner.
	Alone bool
	// Observer, if any, is told what is no State.
	Observer *Observer
}

// Observer is told what a contender does, beside its States. None of the
// functions is nil, and none may block.
type Observer struct {
	// Watched is called on the goroutine of Stand: a watch was set on the znode.
	Watched func(path string)
	// Vacated is called on the goroutine of Stand: ZooKeeper has said that the
	// predecessor is gone.
	Vacated func()
	// Checked is called on the goroutine of the connection's monitor, perhaps
	// after Stand has returned: session.Subscription.OnCheck.
	Checked func(session.Check)
}

// State is a contender's situation.
type State struct {
	Path        string // the own znode
	Predecessor string // path of the znode that is watched; "" for the first
	First       bool
	// Proven: being first is backed by a lease. Never true without First.
	Proven   bool
	Session  int64            // that owns the znode; with First only
	Token    int64            // the own znode's czxid
	Deadline func() time.Time // the lease's current end
	Err      error            // why there is no Path any more
}

// place is one contender. All fields belong to the goroutine in Stand.
type place struct {
	*Config
	report func(State)
	sub    *session.Subscription

	prefixes []string                      // of all znodes that this contender may have created
	creating <-chan request.Answer[string] // a create without answer
	name     string                        // of the own znode, "" before there is one
	ownPath  string
	sent     time.Time // when its create was sent
	session  int64     // its owner
	czxid    int64
	ownWatch *watch.Watch
	vanished string // the path of an own znode that ZooKeeper has said is gone
	outlived string // the path of an own znode whose session is over

	plain      *plainLine // nil unless the names have no GUID
	leavePlain func()
	// absent contains children that are named like contenders and are not.
	absent map[string]bool

	around           surroundings // as last listed
	predecessorPath  string
	predecessorWatch *watch.Watch
	predecessorSeen  content // along with the watch
	// verified: in the connection's epoch, and since, the predecessor is the
	// first in line, so that its departure alone makes this contender first.
	verified bool
	// unsettled: the predecessor was written to, perhaps after the listing.
	unsettled  bool
	crowd      crowd        // what the listing said of the room
	crowdWatch *watch.Watch // on the children of Dir
	// doubt has an element when the watches are to be set again, because one may never
	// fire; then reset is true for the reads.
	doubt    <-chan time.Time
	reset    bool
	epoch    uint64
	proving  bool
	renaming *renaming // nil for none
	farewell *farewell // of the predecessor; nil where none is to be expected
	told     situation
	backoff  request.Backoff
}

// Stand enters the line, stays until the context ends or the place is lost,
// and then leaves: it calls report, on the calling goroutine, with each new
// situation, and before it returns with one that has no Path but the reason.
// The znode is removed after that report.
//
// It returns why the place was lost, which is context.Cause(ctx) after an end
// by the context, and the removal of its znode. Stand waits for that for at most
// leaveLimit, and it goes on in the background until it is confirmed, the session
// is over or the connection is closed.
func Stand(ctx context.Context, cfg *Config, report func(State)) (*Removal, error) {
	p := &place{Config: cfg, report: report, sub: session.Subscribe(cfg.Conn, cfg.Timeout)}
	p.sub.CheckEvery(cfg.CheckInterval)
	p.leavePlain = p.joinPlain()
	p.sub.LogTo(cfg.Log)
	if cfg.Observer != nil {
		p.sub.OnCheck(cfg.Observer.Checked)
	}
	err := p.enter(ctx)
	if err == nil {
		err = p.stay(ctx)
	}
	p.tell(State{Err: err})
	return p.leave(ctx, err), err
}

// stay moves the contender forward until something ends it.
func (p *place) stay(ctx context.Context) error {
	for {
		first := p.around.present && p.around.predecessor == ""
		var err error
		switch {
		case p.Room != nil && !p.crowd.fits:
			err = p.waitForRoom(ctx)
		case first, p.Room != nil:
			err = p.beFirst(ctx)
		default:
			err = p.wait(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// ask sends a request without whose answer the contender cannot go on.
func ask[T any](p *place, f func() (T, error)) <-chan request.Answer[T] {
	if !p.Alone {
		return request.Start(f)
	}
	c := make(chan request.Answer[T], 1)
	value, err := f()
	c <- request.Answer[T]{Value: value, Err: err}
	return c
}

// situation is what makes one State another.
type situation struct {
	path, predecessor string
	first, proven     bool
}

// tell reports a state unless it is like the last one reported.
func (p *place) tell(s State) {
	now := situation{s.Path, s.Predecessor, s.First, s.Proven}
	if now == p.told {
		return
	}
	p.told = now
	p.report(s)
}

// path is the own znode's.
func (p *place) path() string { return p.ownPath }

// setOwn says which is the own znode; "" for none.
func (p *place) setOwn(name string) { p.ownPath, p.name = p.partOf(name) }

// partOf returns the path of a znode of the line and, as a part of it, its name.
// What is kept must not be a name out of a listing: one such string keeps in
// memory a whole span of the names that it was listed with.
func (p *place) partOf(name string) (full, part string) {
	if name == "" {
		return "", ""
	}
	full = p.pathOf(name)
	return full, full[len(full)-len(name):]
}

func (p *place) pathOf(name string) string { return path.Join(p.Dir, name) }

// watched tells the observer of a watch.
func (p *place) watched(path string) {
	if p.Observer != nil {
		p.Observer.Watched(path)
	}
}

// vacated tells the observer of the predecessor's end.
func (p *place) vacated() {
	if p.Observer != nil {
		p.Observer.Vacated()
	}
}

func isNoNode(err error) bool { return errors.Is(err, zk.ErrNoNode) }

// connected waits until a server answers, and returns an error when none can
// any more, or, once there is a znode, when its session is over.
func (p *place) connected(ctx context.Context) error {
	for {
		state := p.sub.State()
		if err := p.over(state); err != nil {
			return err
		}
		if state.Up {
			return nil
		}
		select {
		case <-p.sub.Changed():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// over says whether the connection's state alone ends the place.
func (p *place) over(state session.State) error {
	switch {
	case state.Closed:
		return zkerror.ErrConnClosed
	case p.session != 0 && state.Session != p.session:
		return zkerror.ErrSessionExpired
	}
	return nil
}

// again prepares to repeat a request that failed with err: it returns nil when
// a server answers again, or what ends the place.
func (p *place) again(ctx context.Context, err error) error {
	if !request.Transient(err) {
		return err
	}
	if request.Closed(ctx, p.Conn, err) {
		return zkerror.ErrConnClosed
	}
	p.Log.Debug("request failed: retrying", "path", p.path(), "err", err)
	// The state may not yet show what the request has met.
	if err := request.Pause(ctx, p.backoff.Next()); err != nil {
		return err
	}
	return p.connected(ctx)
}

// query describes a read of a znode with a watch.
func (p *place) query(path string, what watch.What) watch.Query {
	return watch.Query{Path: path, What: what, Epoch: p.sub.State().Epoch, Reset: p.reset}
}

// readWatched reads a znode and sets a watch on it, unless there is one.
func (p *place) readWatched(path string, what watch.What) <-chan request.Answer[watch.Found] {
	q := p.query(path, what)
	return ask(p, func() (watch.Found, error) { return watch.Try(p.Conn, q) })
}

// noteDoubt notes if a watch that was returned may never fire.
func (p *place) noteDoubt(found watch.Found) {
	if found.Doubt && p.doubt == nil {
		p.doubt = time.After(watch.Interval(p.reset))
	}
}

// ownEvent interprets what the watch on the own znode said. That watch is on
// its children, of which an ephemeral znode has none: it fires for the
// znode's end and for no change of its data.
func (p *place) ownEvent(ctx context.Context, event zk.Event) error {
	p.ownWatch = nil
	switch {
	case errors.Is(event.Err, zk.ErrClosing):
		return zkerror.ErrConnClosed
	case event.Type == zk.EventNotWatching:
		return zkerror.ErrSessionExpired
	case event.Type == zk.EventNodeDeleted:
		return p.deleted(ctx)
	}
	return nil
}

// patience is how long the reason of a deletion may be unknown before the
// deletion itself is reported once more.
const patience = 10 * time.Millisecond

// deleted finds out why the own znode is gone. That it is gone is reported at
// once, and a second time when finding out takes long.
func (p *place) deleted(ctx context.Context) error {
	p.vanished = p.path()
	p.tell(State{Err: zkerror.ErrDeleted})
	if err := p.over(p.sub.State()); err != nil {
		return err
	}
	request.AwaitClosing(ctx, p.Conn, patience/2) // Close, too, deletes the znode first
	if p.Patience > 0 {
		// The client waits for a second before it dials a server again.
		limited, cancel := context.WithTimeoutCause(ctx, p.Patience+2*time.Second, zkerror.ErrDeleted)
		defer cancel()
		ctx = limited
	}
	read := request.Start(func() (remains, error) { return p.readRemains(ctx) })
	late := time.NewTimer(patience)
	defer late.Stop()
	var a request.Answer[remains]
	select {
	case a = <-read:
	case <-late.C:
		p.report(State{Err: zkerror.ErrDeleted})
		a = <-read
	}
	r, err := a.Value, a.Err
	if over := p.over(p.sub.State()); over != nil {
		return over // expiry deletes the znode first and tells later
	}
	switch {
	case isNoNode(err):
		return p.noDir()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, zkerror.ErrConnClosed):
		return zkerror.ErrConnClosed // Close, too, deletes the znode first
	case err != nil:
		return zkerror.ErrDeleted
	}
	switch {
	case r.ended:
		return zkerror.ErrElectionOver
	case r.dir == nil, p.isOther(r.dir):
		return p.noDir()
	}
	return zkerror.ErrDeleted
}

// remains is what is left of the line when the own znode was deleted.
type remains struct {
	ended bool     // there is an end marker
	dir   *zk.Stat // nil if the line's node does not exist; not read if ended
}

// readRemains reads the end marker, and then the line's node, whose children it does not
// list: when an election ends, all candidates do this at the same time. The marker is
// created before any candidate is deleted, and is deleted together with the node. So if
// there is no marker, and later the same node exists, the election has not ended.
func (p *place) readRemains(ctx context.Context) (remains, error) {
	if p.EndMarker != "" {
		marker, err := p.stat(ctx, p.EndMarker)
		if err != nil || marker != nil {
			return remains{ended: marker != nil}, err
		}
	}
	dir, err := statOf(ctx, p.Conn, p.Dir)
	return remains{dir: dir}, err
}

// isOther reports whether a Dir is not the one of this line.
func (p *place) isOther(dir *zk.Stat) bool { return p.DirCzxid != 0 && dir.Czxid != p.DirCzxid }

// noDir is what it means that Dir is missing while the own znode ought to be in
// it. A client has deleted it then, unless the session in which it existed is over: the
// servers may have lost everything since.
func (p *place) noDir() error {
	seen := p.session
	if seen == 0 {
		seen = p.DirSession
	}
	switch {
	case seen != 0 && p.Conn.SessionID() != seen:
		return zkerror.ErrSessionExpired
	case p.MakeDir != nil:
		return zkerror.ErrDeleted
	}
	return zkerror.ErrElectionOver
}
