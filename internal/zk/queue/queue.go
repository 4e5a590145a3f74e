// Package queue runs contenders in wait queues on ZooKeeper: it connects the state machine of package contender to
// a connection. Elections use this package, and so do the recipes whose clients wait for their turn.
//
// The goroutine that calls [Run] runs the state machine of the contender. Requests block and cannot be canceled, so
// short-lived goroutines send them, and the goroutine of Run reacts to other inputs in the meantime. With
// Config.Alone, there is nothing else to react to, and the goroutine of Run sends the requests itself.
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
	// Prefix returns the beginning of a name with the GUID guid; nil means Naming.NamePrefix.
	Prefix func(guid string) string
	Data   []byte

	// MakeDir creates Dir if it does not exist. If MakeDir is nil, a missing Dir means that the queue has ended.
	MakeDir func(ctx context.Context) error
	// Stamp allows the create to write Dir, with empty data, in the same transaction, if a read has shown that Dir
	// contains no data. The reply to the create then contains the token, and shows whether the contender is the
	// only child.
	Stamp bool
	// Unused means that Dir contained neither data nor children when the version of its data was UnusedVersion. If
	// Dir still has this version, the create writes Dir as well, as with Stamp.
	Unused        bool
	UnusedVersion int32
	// Rotation, if not nil, chooses the GUID of the contender, and predicts its predecessor if the create has
	// written Dir.
	Rotation *Rotation
	// Parting returns the operations that the client executes in one transaction with the deletion of the
	// contender's znode. reason is why the contender leaves. If the servers reject the transaction, the client
	// deletes the znode without these operations.
	Parting func(reason error) []any
	// Renames delivers requests to give the contender another name during its turn.
	Renames <-chan Rename
	// Alone means that nothing else needs the goroutine of Run, so that requests may block it, except during the
	// turn. Run then notices that the context is done only when the current request is answered.
	Alone bool
	// Rejoins means that the contender joins again, perhaps in the same session, after the servers have rejected a
	// request for a reason that can pass.
	Rejoins bool
	// Observer is notified of events that a State does not contain. It may be nil.
	Observer *Observer
}

// Observer is notified of the progress of a contender, until the contender leaves. No function is nil, and none may
// block.
type Observer struct {
	// Watched is called on the goroutine of Run when the contender has set a watch on the znode at path.
	Watched func(path string)
	// Vacated is called on the goroutine of Run when the znode of the predecessor was deleted.
	Vacated func()
	// Checked is passed to connection.Subscription.OnCheck, which describes its parameters. It may be called after
	// Run has returned.
	Checked func(sent time.Time, err error)
}

// Rename is a request to give the contender a name of another kind at the same position in the queue, such as the
// name of a reader instead of a writer.
type Rename struct {
	To contender.Naming
	// Done has the capacity 1. It receives nil after the contender has reported its new path, or the error of the
	// rename. It receives nothing if the contender leaves first.
	Done chan<- error
}

// State is the situation of a contender.
type State struct {
	Path        string // the contender's znode, empty before it is created
	Predecessor string // the path of the predecessor's znode, empty for the head of the queue
	Next        bool   // the predecessor is the only earlier contender; see contender.State
	First       bool   // it is the contender's turn
	// Proven means that the contender has a valid lease during its turn, so First is set as well.
	Proven  bool
	Session int64                    // the owner of the znode; set with First
	Token   int64                    // the creation zxid of the znode; set with First
	Lease   *connection.Subscription // the subscription with the lease of the turn; set with First
	Err     error                    // why the contender has lost or removed its znode
}

// endedLimit is how long Run waits for the removal if the queue has ended, because another client then deletes the
// queue.
const endedLimit = 100 * time.Millisecond

// Run joins the queue, stays in the queue until ctx is done or the contender's znode is lost, and leaves. It calls
// report on the calling goroutine with each new state. Before Run removes the znode, it calls report with a state
// that contains the reason instead of a path.
//
// Run returns the removal of what the contender has created, and the reason, which is context.Cause(ctx) if ctx was
// done. It waits for the removal for at most limit.Confirm. Afterwards the removal continues in the background
// until the servers have confirmed it, the session has expired or the connection is closed. cfg must not be changed
// until the removal is over.
func Run(ctx context.Context, cfg *Config, report func(State)) (*Removal, error) {
	m := Join(cfg, report)
	m.RunUntil(ctx, func() bool { return false })
	return m.Leave(ctx)
}

// Member is a contender that no single goroutine owns: any goroutine may call its methods, one at a time.
type Member struct{ driver *driver }

// Join returns a contender that joins the queue when RunUntil is called. The caller must call RunUntil and then
// Leave.
func Join(cfg *Config, report func(State)) *Member {
	return &Member{newDriver(cfg, report)}
}

// RunUntil does what Run does, until the contender has left, or until stop returns true, which RunUntil calls after
// each step. It reports whether the contender has left. Otherwise the caller must call RunUntil again soon, because
// the contender does not notice the loss of its znode in the meantime.
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

// Leave removes what the contender has created, after RunUntil has returned true. It returns the results of Run.
func (m *Member) Leave(ctx context.Context) (*Removal, error) {
	d := m.driver
	reason := d.machine.Reason()
	if d.machine.Done() || d.cfg.Alone && ctx.Err() != nil {
		return &Removal{closedChannel, d.finish()}, reason
	}
	removal := &Removal{done: make(chan struct{})}
	go func() {
		defer close(removal.done)
		removal.err = d.finish()
	}()
	removal.wait(ctx, reason, d.cfg.Log)
	return removal, reason
}

// closedChannel is the channel that Done returns for removals that are over when Leave returns.
var closedChannel = func() chan struct{} {
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

// Confirmed reports whether the servers have confirmed that nothing of the contender remains.
func (r *Removal) Confirmed() bool {
	select {
	case <-r.done:
		return r.err == nil
	default:
		return false
	}
}

// Err returns nil if the servers have confirmed the removal, and otherwise the reason why they have not. It must be
// called after the removal is over.
func (r *Removal) Err() error { return r.err }

// wait waits until the removal is over, for a limited time, and then logs a warning.
func (r *Removal) wait(ctx context.Context, reason error, log *slog.Logger) {
	wait := limit.Confirm
	over := errors.Is(reason, connection.ErrElectionOver)
	if over {
		wait = endedLimit
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	if !over && ctx.Err() == nil {
		// The queue may also end during the wait. Then shorten the wait.
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

// RemovalOf returns one Removal for everything that several contenders have created.
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
