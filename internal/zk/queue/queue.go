// Package queue runs contenders in wait queues on ZooKeeper: it connects the state machine of package contender
// to a connection. Elections use it, and so do the recipes whose clients wait for their turn.
//
// The goroutine that calls [Run] owns the contender. Requests block and cannot be cancelled, so they are sent
// from short-lived goroutines, and the owner reacts to other inputs in the meantime. If it has nothing else to
// react to (Config.Alone), it sends them itself.
package queue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// Config describes a queue and a contender in it.
type Config struct {
	// Config is the configuration of the state machine. Run sets CanMakeQueue.
	contender.Config

	connection.Options
	// Prefix returns the beginning of a name with this GUID; nil means Naming.NamePrefix.
	Prefix func(guid string) string
	Data   []byte

	// MakeDir creates Dir if it does not exist. If it is nil, a missing Dir means that the queue has ended.
	MakeDir func(ctx context.Context) error
	// Stamp allows the create to write Dir, without data, in the same transaction, if Dir was seen without
	// data. The reply then contains the token, and shows whether the contender is the only one.
	Stamp bool
	// Unused means that Dir had neither data nor children in version UnusedVersion of its data. If it still has
	// this version, the create is stamped as well.
	Unused        bool
	UnusedVersion int32
	// Rotation, if not nil, chooses the GUID of the contender, and predicts its predecessor if the create is stamped.
	Rotation *Rotation
	// Parting returns the operations that are executed in one transaction with the deletion of the contender's
	// znode, given the reason why it leaves. If that is rejected, the znode is deleted without them.
	Parting func(reason error) []any
	// Renames delivers requests to continue under another name during the contender's turn.
	Renames <-chan Rename
	// Alone means that nothing else needs the goroutine of Run, so that requests may block it, except during
	// the turn. The end of the context is then noticed when the current request is answered.
	Alone bool
	// Rejoins means that the contender joins again, perhaps in the same session, after the servers have
	// rejected a request for a reason that can pass.
	Rejoins bool
	// Observer is notified of events that are not part of a State. It may be nil.
	Observer *Observer
}

// Observer is notified of the progress of a contender, until it leaves. No function is nil, and none may block.
type Observer struct {
	// Watched is called on the goroutine of Run when a watch was set on the znode.
	Watched func(path string)
	// Vacated is called on the goroutine of Run when the predecessor's znode was deleted.
	Vacated func()
	// Checked is called as by connection.Subscription.OnCheck, perhaps after Run has returned.
	Checked func(sent time.Time, err error)
}

// Rename is a request to continue under a name of another kind at the same position, such as a reader's.
type Rename struct {
	To contender.Naming
	// Done, of capacity 1, receives nil after the contender has reported its new path, or the error. It
	// receives nothing if the contender leaves first.
	Done chan<- error
}

// State is the situation of a contender.
type State struct {
	Path        string // the contender's znode, empty before it is created
	Predecessor string // the path of the predecessor, empty for the head of the queue
	Next        bool   // the predecessor is the only earlier contender: see contender.State
	First       bool   // it is the contender's turn
	// Proven reports that the turn is backed by a valid lease. It implies First.
	Proven  bool
	Session int64                    // the owner of the znode; set with First
	Token   int64                    // the creation zxid of the znode; set with First
	Lease   *connection.Subscription // backs the turn; set with First
	Err     error                    // why the contender has lost or removed its znode
}

// endedLimit is how long Run waits for the removal if the queue has ended, and so is deleted by another client.
const endedLimit = 100 * time.Millisecond

// Run joins the queue, stays in it until ctx is done or the contender's znode is lost, and leaves. It calls
// report on the calling goroutine with each new state, and, before it removes the znode, with a state that
// contains the reason instead of a path.
//
// It returns the removal of what the contender has created, and the reason, which is context.Cause(ctx) if ctx
// was done. It waits for the removal for at most limit.Confirm. The removal then continues in the background
// until it is confirmed, the session has expired or the connection is closed. cfg must not be changed before.
func Run(ctx context.Context, cfg *Config, report func(State)) (*Removal, error) {
	m := Join(cfg, report)
	m.RunUntil(ctx, func() bool { return false })
	return m.Leave(ctx)
}

// Member is a contender whose goroutine may change: one goroutine at a time calls its methods.
type Member struct{ driver *driver }

// Join returns a contender that joins the queue when RunUntil is called. RunUntil and then Leave must be
// called.
func Join(cfg *Config, report func(State)) *Member {
	return &Member{newDriver(cfg, report)}
}

// RunUntil does what Run does, until the contender has left, or stop, which is called after each step, returns
// true. It reports whether the contender has left. Otherwise it must be called again soon, because the loss of
// the contender's znode is not noticed in the meantime.
func (m *Member) RunUntil(ctx context.Context, stop func() bool) (left bool) {
	d := m.driver
	for !d.machine.Leaving() {
		if stop() {
			return false
		}
		d.step(d.next(ctx))
	}
	return true
}

// Leave removes what the contender has created, after RunUntil has returned true. See Run.
func (m *Member) Leave(ctx context.Context) (*Removal, error) {
	d := m.driver
	reason := d.machine.Reason()
	if d.machine.Done() || d.cfg.Alone && ctx.Err() != nil {
		return &Removal{over, d.finish()}, reason
	}
	removal := &Removal{done: make(chan struct{})}
	go func() {
		defer close(removal.done)
		removal.err = d.finish()
	}()
	removal.wait(ctx, reason, d.cfg.Log)
	return removal, reason
}

// over is the channel of removals that are over when their contenders have left.
var over = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Removal is the removal of everything that a contender has created.
type Removal struct {
	done chan struct{}
	err  error
}

// Done returns a channel that is closed when the removal is over.
func (r *Removal) Done() <-chan struct{} { return r.done }

// Confirmed reports whether it is certain, at this moment, that nothing of the contender is left.
func (r *Removal) Confirmed() bool {
	select {
	case <-r.done:
		return r.err == nil
	default:
		return false
	}
}

// Err returns, after the removal is over, why it is not confirmed, or nil if it is.
func (r *Removal) Err() error { return r.err }

// wait waits for the removal for a limited time.
func (r *Removal) wait(ctx context.Context, reason error, log *slog.Logger) {
	wait := limit.Confirm
	over := errors.Is(reason, connection.ErrElectionOver)
	if over {
		wait = endedLimit
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	if !over && ctx.Err() == nil {
		// The queue may be ended while the contender leaves for another reason.
		stop := context.AfterFunc(ctx, func() {
			if errors.Is(context.Cause(ctx), connection.ErrElectionOver) {
				timer.Reset(endedLimit)
			}
		})
		defer stop()
	}
	select {
	case <-r.done:
	case <-timer.C:
		log.Warn("removal of the znode is not confirmed yet: retrying")
	}
}

// RemovalOf returns the removal of everything that several contenders have created.
func RemovalOf(removals ...*Removal) *Removal {
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
