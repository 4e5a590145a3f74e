package queue

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// next waits for the next input. If the deletion of the contender's znode is known, it comes
// before all others: the server reports deletions in their order, and another input may bring
// the contender's turn.
func (d *driver) next(ctx context.Context) *frame {
	f := d.nextReady()
	switch {
	case f != nil:
	case d.checkWatches:
		f = d.connChanged(ctx)
	default:
		f = d.wait(ctx)
	}
	return d.deliverOwnDeletionFirst(f)
}

// nextReady returns an input that needs no waiting, or nil.
func (d *driver) nextReady() (f *frame) {
	switch {
	case d.deferred != nil:
		f, d.deferred = d.deferred, nil
	case d.proved:
		d.proved, f = false, input(contender.ConnChanged)
	case len(d.answered) > 0:
		f = d.receiveAnswer()
	}
	return f
}

// deliverOwnDeletionFirst returns f, or the event of the contender's znode if it has occurred; then f
// follows.
func (d *driver) deliverOwnDeletionFirst(f *frame) *frame {
	if f.in.Kind == contender.Fired && f.in.Watch == contender.OwnWatch {
		return f
	}
	select {
	case d.event = <-d.own.watch.C():
		d.deferred = f
		return d.ownFired()
	default:
		return f
	}
}

// wait blocks until there is an input. It omits what only contenders for locks need: idle candidates are
// numerous, and with the arms of waitForAll in this frame, their stacks would take 8 KiB instead of 4. The
// rows "memory, stacks" of make bench show the effect.
func (d *driver) wait(ctx context.Context) *frame {
	if d.cfg.Alone || d.cfg.Admit != nil {
		return d.waitForAll(ctx)
	}
	select {
	case r := <-d.replies:
		return d.received(r)
	case d.event = <-d.own.watch.C():
		return d.ownFired()
	case d.event = <-d.others[0].watch.C():
		return d.otherFired(ctx, 0)
	case d.event = <-d.others[1].watch.C():
		return d.otherFired(ctx, 1)
	case <-d.sub.Changed():
		return d.connChanged(ctx)
	case <-d.schedule():
		return d.timerExpired()
	case <-ctx.Done():
		return leaveInput(ctx)
	}
}

// waitForAll is wait for all kinds of inputs.
func (d *driver) waitForAll(ctx context.Context) *frame {
	select {
	case r := <-d.replies:
		return d.received(r)
	case d.event = <-d.own.watch.C():
		return d.ownFired()
	case d.event = <-d.others[0].watch.C():
		return d.otherFired(ctx, 0)
	case d.event = <-d.others[1].watch.C():
		return d.otherFired(ctx, 1)
	case d.event = <-d.queue.C():
		return d.queueFired()
	case <-d.sub.Changed():
		return d.connChanged(ctx)
	case <-d.schedule():
		return d.timerExpired()
	case r := <-d.renames():
		return d.startRename(r)
	case <-ctx.Done():
		return leaveInput(ctx)
	}
}

// connChanged returns the events of watches that have fired, and then the change of the connection.
// The pool fires a lost watch and reports that as a change of the connection. If a server has given a
// final answer to the monitor, which includes the checks of the lease, the contender leaves.
func (d *driver) connChanged(ctx context.Context) *frame {
	d.checkWatches, d.event = true, zk.Event{}
	switch {
	case d.own.watch.Fired():
		return d.ownFired()
	case d.others[0].watch.Fired():
		return d.otherFired(ctx, 0)
	case d.others[1].watch.Fired():
		return d.otherFired(ctx, 1)
	case d.queue.Fired():
		return d.queueFired()
	}
	d.checkWatches = false
	f := input(contender.ConnChanged)
	if err := d.sub.State().Rejected; err != nil {
		f.in.Kind, f.in.Err = contender.Leave, err
	}
	return f
}

// renames returns the channel of requests for another name if one can be served.
func (d *driver) renames() <-chan Rename {
	if d.rename != nil || !d.machine.Holding() {
		return nil
	}
	return d.cfg.Renames
}

func (d *driver) queueFired() *frame {
	f := input(contender.Fired)
	f.in.Watch, f.in.Event = contender.QueueWatch, eventOf(d.queue.Take(d.event))
	d.queue = nil
	return f
}

func (d *driver) timerExpired() *frame {
	f := input(contender.Expired)
	f.in.Timer = d.popTimer()
	return f
}

func leaveInput(ctx context.Context) *frame {
	f := input(contender.Leave)
	f.in.Err = context.Cause(ctx)
	return f
}

// nextReply waits for the next input of a contender that has left. A reply may be ready: for example,
// the event that made the contender leave has preceded it.
func (d *driver) nextReply() *frame {
	if f := d.nextReady(); f != nil {
		return f
	}
	select {
	case r := <-d.replies:
		return d.received(r)
	case <-d.sub.Changed():
		return input(contender.ConnChanged)
	}
}

// receiveAnswer takes the result of a request that this goroutine has executed.
func (d *driver) receiveAnswer() *frame {
	r := d.answered[0]
	d.answered = d.answered[:copy(d.answered, d.answered[1:])]
	return d.receive(r)
}

// received takes a result from the channel.
func (d *driver) received(r *result) *frame {
	if d.waiting--; d.waiting == 0 && !d.cfg.Alone {
		// Idle candidates are numerous.
		d.replies = nil
		if !d.requests.hasFailed() {
			d.requests.over()
			d.requests = nil
		}
	}
	return d.receive(r)
}

func (d *driver) ownFired() *frame {
	f := input(contender.Fired)
	f.in.Watch, f.in.Name, f.in.Event = contender.OwnWatch, nameOf(d.own.path), eventOf(d.own.watch.Take(d.event))
	d.own = watched{}
	return f
}

func (d *driver) otherFired(ctx context.Context, i int) *frame {
	o := d.others[i]
	d.others[i] = watched{}
	defer ignoreDeparture(d.cfg.Conn, o.departure)
	f := input(contender.Fired)
	f.in.Watch, f.in.Name, f.in.Event, f.in.Safe = contender.OtherWatch, nameOf(o.path), eventOf(o.watch.Take(d.event)), true
	if f.in.Event == contender.Deleted {
		if d.machine.IsPredecessor(f.in.Name) {
			d.observeDeparture()
		}
		f.in.Safe = o.departure == nil || heardDeparture(ctx, d.cfg.Conn, o.departure)
	}
	return f
}
