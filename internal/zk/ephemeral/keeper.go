package ephemeral

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// CheckSize returns connection.ErrInvalid if servers with default settings would not accept data of this size in a
// znode with this path and ACL.
func CheckSize(path string, data []byte, acl []zk.ACL) error {
	if _, err := txn.Size([]any{&zk.CreateRequest{Path: path, Data: data, Acl: acl}}); err != nil {
		return fmt.Errorf("%w: %d bytes of data: %w", connection.ErrInvalid, len(data), err)
	}
	return nil
}

// Config configures a Keeper.
type Config struct {
	Path string
	Data []byte
	// Static makes the znode persistent. The Keeper adopts a persistent znode that exists.
	Static bool
	// Retry makes the Keeper repeat requests that the servers reject. Without Retry, the Keeper gives up a write that
	// the servers reject, and ends if the servers reject a create, unless it has created the znode before and the
	// reason can pass, such as an exceeded quota.
	Retry bool
	// Report is called by the goroutine of the Keeper after each change of the State.
	Report func(State)
	// Events, if not nil, is called by the goroutine of the Keeper with the events of the znode: Joined, Released
	// and Lost.
	Events func(event.Event)
}

// State is the state of a znode that a Keeper maintains.
type State struct {
	// Present is set if the znode exists and belongs to the Keeper.
	Present bool
	// Unsure is set if the connection has broken since a server has last confirmed that the znode is present.
	Unsure bool
	// Owner is the session of the znode and Czxid its creation zxid, even if the znode belongs to another client.
	// Both are 0 if the znode does not exist.
	Owner, Czxid int64
	// Err is the reason why the znode is not present: a TakenError, connection.ErrSessionExpired,
	// connection.ErrDeleted, or the error with which the servers have rejected a request. The rejection of a write
	// is reported in Err even if the znode is present. If Ended is set, Err is the reason why the Keeper has ended.
	Err error
	// Ended is set in the last State, when the Keeper has ended.
	Ended bool
}

// Keeper maintains a znode until the Keeper is closed: it creates the znode again if the znode is deleted or the
// session expires, and writes the data of the znode. Its methods may be called from any goroutine.
type Keeper struct {
	cfg   Config
	claim *claim
	ctx   context.Context
	stop  context.CancelCauseFunc
	wake  chan struct{} // contains an element if the Keeper may have to write data
	ended chan struct{}

	// The following are used only by the goroutine.
	created bool  // the Keeper has created the znode at least once
	closed  bool  // Close was called before the Keeper has ended
	joined  int64 // the creation zxid of the znode for which Joined was reported, or 0

	mu        sync.Mutex
	state     State
	data      []byte
	wanted    uint64        // the number of the newest data, from 1
	written   uint64        // the number of the data that the znode contains, 0 if the data is unknown
	rejection error         // the error with which the servers reject the newest data, or nil
	changed   chan struct{} // closed and replaced when one of the fields above changes

	removal error // why it is unknown whether the servers have deleted the znode; set before ended is closed
}

// Keep starts a Keeper, and does not wait for ZooKeeper. The Keeper creates missing parents of the znode as
// containers.
func Keep(s *recipe.Setup, c Config) *Keeper {
	ctx, stop := context.WithCancelCause(context.Background())
	k := &Keeper{
		cfg: c, claim: newClaim(s, c.Path, c.Static), ctx: ctx, stop: stop, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		data: c.Data, wanted: 1, changed: make(chan struct{}),
	}
	go k.run()
	return k
}

// State returns the newest state. The Keeper may not have called Config.Report with this state yet.
func (k *Keeper) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Set replaces the data of the znode and returns the number of the new data. The number of Config.Data is 1.
func (k *Keeper) Set(data []byte) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.data, k.rejection = data, nil
	k.wanted++
	connection.Signal(k.wake)
	return k.wanted
}

// AwaitWritten blocks until the znode contains the data with this number or newer data. It returns an error if the
// servers reject the data, if the Keeper is closed or has ended, or if the context is done.
func (k *Keeper) AwaitWritten(ctx context.Context, number uint64) error {
	return k.await(ctx, func() (bool, error) { return k.written >= number, k.rejection })
}

// AwaitPresent blocks until the znode is present, or returns an error if the Keeper is closed or has ended, or
// if the context is done.
func (k *Keeper) AwaitPresent(ctx context.Context) error {
	return k.await(ctx, func() (bool, error) { return k.state.Present, nil })
}

// await blocks until condition returns true or an error. await calls condition with the mutex held. It also returns
// an error if the Keeper is closed or has ended, or if the context is done.
func (k *Keeper) await(ctx context.Context, condition func() (bool, error)) error {
	for {
		k.mu.Lock()
		ok, err := condition()
		changed := k.changed
		k.mu.Unlock()
		if ok {
			return nil
		} else if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-k.ctx.Done():
			return context.Cause(k.ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends the Keeper with the given reason and removes the znode. It returns nil when the servers have confirmed
// the removal. If the context is done first, Close returns the cause, and the removal continues in the background.
// The reason of the first call remains the reason.
func (k *Keeper) Close(ctx context.Context, reason error) error {
	k.stop(reason)
	select {
	case <-k.ended:
		return k.removal
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done returns a channel that is closed when the Keeper has ended.
func (k *Keeper) Done() <-chan struct{} { return k.ended }

// Err returns nil until the Keeper has ended, and then the reason.
func (k *Keeper) Err() error {
	select {
	case <-k.ended:
		return k.State().Err
	default:
		return nil
	}
}

// run maintains the znode until the Keeper is closed or cannot continue, and then removes the znode.
func (k *Keeper) run() {
	reason := k.keep()
	k.closed = k.ctx.Err() != nil
	k.stop(reason) // release the resources of the context
	if k.removal = reason; !errors.Is(reason, connection.ErrConnClosed) {
		k.removal = k.claim.remove()
	}
	k.claim.close()
	k.setState(State{Err: reason, Ended: true})
	close(k.ended)
}

const (
	// minLifetime is how long a znode must have existed so that keep creates it again without a pause.
	minLifetime = time.Second
	// maxLossPause limits the pause before keep creates a znode again that is deleted repeatedly.
	maxLossPause = time.Second
)

// keep maintains the znode until the Keeper is closed or cannot continue, and returns the reason.
func (k *Keeper) keep() error {
	var backoff connection.Backoff
	for {
		begin := time.Now()
		err := connection.Refine(k.claim.setup.Conn, k.keepOnce())
		backoff.Max = maxLossPause
		var taken *TakenError
		switch {
		case k.ctx.Err() != nil:
			return context.Cause(k.ctx)
		case errors.Is(err, connection.ErrConnClosed):
			return err
		case errors.As(err, &taken):
			k.setState(State{Owner: taken.Owner, Czxid: taken.Czxid, Err: taken})
			if _, err := k.claim.reader.Wait(k.ctx, k.claim.released); err != nil {
				return err
			}
			continue
		case errors.Is(err, connection.ErrSessionExpired), errors.Is(err, connection.ErrDeleted):
			k.setState(State{Err: err})
			// The loss of the znode can be the first sign that the owner is closing the connection. Wait a little,
			// because no request may be sent in that case.
			connection.AwaitClosing(k.ctx, k.claim.setup.Conn, connection.ClosingTime)
		case k.cfg.Retry, k.created && connection.IsPassing(err):
			_, wanted := k.wantedData()
			k.reject(wanted, err)
			k.setState(State{Err: err})
			backoff.Max = connection.MaxRejectionPause
		default:
			return err
		}
		if time.Since(begin) >= minLifetime {
			continue
		}
		if err := k.sleep(backoff.Next()); err != nil {
			return err
		}
	}
}

// sleep pauses for the time d, or until Set is called.
func (k *Keeper) sleep(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-k.wake:
		return nil
	case <-k.ctx.Done():
		return context.Cause(k.ctx)
	}
}

// keepOnce creates the znode once and maintains it until the znode is lost or the context is done, and returns the
// reason.
func (k *Keeper) keepOnce() error {
	data, number := k.wantedData()
	sent, err := k.claim.obtain(k.ctx, data)
	if err != nil {
		return err
	}
	k.created = true
	if sent.IsZero() {
		number = 0
	}
	k.setWritten(number)
	tried := number // the number of the data that was last written or rejected
	backoff := connection.Backoff{Max: connection.MaxRejectionPause}
	for {
		state := State{Present: true, Owner: k.claim.owner, Czxid: k.claim.czxid}
		var retry <-chan time.Time
		if data, wanted := k.wantedData(); wanted != tried {
			rejection, err := k.claim.write(k.ctx, data)
			switch {
			case err != nil:
				return err
			case rejection == nil:
				tried = wanted
				k.setWritten(wanted)
			case k.cfg.Retry:
				retry, state.Err = time.After(backoff.Next()), rejection
				k.reject(wanted, rejection)
			default:
				tried = wanted
				k.reject(wanted, rejection)
			}
		}
		k.setState(state)
		confirm, err := k.wait(retry)
		if err == nil && confirm {
			err = k.claim.syncAndVerify(k.ctx)
		}
		if err != nil {
			return err
		}
	}
}

// wait blocks until the Keeper should read the znode again or write data. confirm is set if the Keeper should read
// the znode. err is the reason why the znode is lost. Unlike watch.Reader.Wait, wait reports a deletion of the
// znode before the next read, and reports that the connection is down.
func (k *Keeper) wait(retry <-chan time.Time) (confirm bool, err error) {
	own, sub := k.claim.reader.Watch(), k.claim.sub
	for {
		state := sub.State()
		switch {
		case state.Closed:
			return false, connection.ErrConnClosed
		case state.Up && !k.claim.static && state.Session != k.claim.owner:
			return false, connection.ErrSessionExpired
		case state.Epoch != k.claim.reader.Epoch():
			k.setState(State{Present: true, Unsure: true, Owner: k.claim.owner, Czxid: k.claim.czxid})
			if state.Up {
				return true, nil
			}
		}
		select {
		case event := <-own.C():
			return true, k.loss(own.Take(event))
		case <-k.claim.reader.Doubt():
			return true, nil
		case <-sub.Changed():
			if own.Fired() {
				return true, k.loss(own.Take(zk.Event{}))
			}
		case <-k.wake:
			return false, nil
		case <-retry:
			return false, nil
		case <-k.ctx.Done():
			return false, context.Cause(k.ctx)
		}
	}
}

// loss returns the result of watch.Loss, but nil if the session has expired and the znode is persistent, because a
// persistent znode remains.
func (k *Keeper) loss(event zk.Event) error {
	err := watch.Loss(event)
	if k.claim.static && errors.Is(err, connection.ErrSessionExpired) {
		return nil
	}
	return err
}

// wantedData returns the data that the znode should contain, and the number of this data.
func (k *Keeper) wantedData() ([]byte, uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.data, k.wanted
}

// setWritten records that the znode contains the data with this number.
func (k *Keeper) setWritten(number uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.written = number; number == k.wanted {
		k.rejection = nil
	}
	k.notifyWaiters()
}

// reject records that the servers reject the data with this number, unless Set has replaced the data.
func (k *Keeper) reject(number uint64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if number == k.wanted {
		k.rejection = err
		k.notifyWaiters()
	}
}

// setState records the state, and reports it if it differs from the previous state.
func (k *Keeper) setState(s State) {
	k.mu.Lock()
	same := fmt.Sprint(s) == fmt.Sprint(k.state)
	k.state = s
	k.notifyWaiters()
	k.mu.Unlock()
	if !same {
		k.cfg.Report(s)
		k.reportEvents(s)
	}
}

// reportEvents reports the events that a new state implies.
func (k *Keeper) reportEvents(s State) {
	if k.cfg.Events == nil || s.Present && s.Czxid == k.joined {
		return
	}
	if k.joined != 0 {
		e := event.Event{Kind: event.Lost, Subject: k.claim.path, Token: k.joined, Err: s.Err}
		if s.Ended && k.closed {
			e.Kind, e.Err = event.Released, k.removal
		}
		k.joined = 0
		k.cfg.Events(e)
	}
	if s.Present {
		k.joined = s.Czxid
		k.cfg.Events(event.Event{Kind: event.Joined, Subject: k.claim.path, Token: s.Czxid})
	}
}

// notifyWaiters wakes the calls of await. The caller holds the mutex.
func (k *Keeper) notifyWaiters() {
	close(k.changed)
	k.changed = make(chan struct{})
}
