package queue

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/session"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
)

// driver executes the outputs of one contender and provides its inputs. It belongs to the
// goroutine of Run, and afterwards to that of the removal.
type driver struct {
	cfg     *Config
	machine *contender.Contender
	report  func(State)
	sub     *session.Subscription
	requests

	proved   bool             // the state of the lease may have changed
	answered []result         // of requests that this goroutine has executed
	deferred *contender.Input // an input that the deletion of the contender's znode precedes
	replies  chan result      // nil while there are no requests in goroutines
	waiting  int              // the number of such requests

	own    watched    // the contender's znode
	others [2]watched // the predecessor and the contender before it
	queue  *watch.Watch

	path    string    // the contender's znode
	session int64     // its owner
	sent    time.Time // when its create, or the last Replace, was sent

	timers []deadline
	timer  *time.Timer // of the first of timers

	rename *Rename // in progress
	err    error   // of the removal
}

// watched is a znode with a watch.
type watched struct {
	name  string
	owner int64
	watch *watch.Watch
	// departure is set if the znode belongs to another contender of the same session.
	departure *departure
}

// deadline is when a timer expires.
type deadline struct {
	timer contender.Timer
	at    time.Time
}

func newDriver(cfg *Config, report func(State)) *driver {
	d := &driver{
		cfg: cfg, report: report, sub: session.Subscribe(cfg.Conn, cfg.Timeout),
		machine: contender.New(&contender.Config{
			Policy: cfg.Policy, Dir: cfg.Dir, Naming: cfg.Naming, Tombstone: cfg.Tombstone, CanMakeQueue: cfg.MakeDir != nil,
			QueueCzxid: cfg.DirCzxid, QueueSession: cfg.DirSession,
			Lookahead: cfg.Lookahead, Patience: cfg.Patience, Standby: cfg.Standby,
		}),
	}
	d.requests = newRequests(cfg)
	d.sub.CheckEvery(cfg.CheckInterval)
	d.sub.LogTo(cfg.Log)
	if cfg.Observer != nil {
		d.sub.OnCheck(cfg.Observer.Checked)
	}
	return d
}

// finish completes the removal after the contender has left, and returns its error.
func (d *driver) finish() error {
	defer d.requests.close()
	defer d.sub.Close()
	for !d.machine.Done() {
		d.step(d.nextReply())
	}
	if d.err != nil {
		d.cfg.Log.Warn("could not remove the znode", "path", d.path, "err", d.err)
	}
	return d.err
}

// step passes an input to the state machine and executes its outputs.
func (d *driver) step(in contender.Input) {
	s := d.sub.State()
	conn := contender.Conn{
		Session: s.Session, Up: s.Up, Closed: s.Closed, Epoch: s.Epoch,
		Missing: s.Missing, Proven: s.Proven, Lapses: s.Lapses,
	}
	var buffer [4]contender.Output
	outputs := d.machine.Step(conn, &in, buffer[:0])
	sends := 0
	for i := range outputs {
		if outputs[i].Kind == contender.Send {
			sends++
		}
	}
	for i := range outputs {
		o := &outputs[i]
		if o.Kind == contender.Send {
			sends--
			d.send(o.Request, sends == 0)
		} else {
			d.execute(o)
		}
	}
	d.dropWatches()
}

// send executes a request: on this goroutine if the contender is alone and the request is the
// last one of the step.
func (d *driver) send(r contender.Request, last bool) {
	do := d.prepare(r)
	if d.cfg.Alone && last && r.Kind != contender.Notify { // a holder does not wait for it
		d.answered = append(d.answered, do())
		return
	}
	if d.replies == nil {
		d.replies = make(chan result, 4)
	}
	d.waiting++
	go func(replies chan<- result) { replies <- do() }(d.replies)
}

// receive notes the result of a request, and returns it as an input.
func (d *driver) receive(r result) contender.Input {
	reply := &r.reply
	switch r.request.Kind {
	case contender.Create:
		if reply.Err == nil {
			d.path, d.session, d.sent = r.path, reply.Session, r.sent
		}
	case contender.ReadOwn:
		if reply.Err == nil {
			d.session = reply.Owner
			d.own = watched{name: r.request.Name, watch: r.watch}
			d.observeWatch(r.path)
		}
	case contender.ReadPredecessor, contender.ReadBefore:
		switch {
		case reply.Err == nil:
			w := watched{name: r.request.Name, owner: reply.Owner, watch: r.watch}
			if w.owner == d.session {
				w.departure = expectDeparture(d.cfg.Conn, r.path)
			}
			d.keepWatch(w)
			d.observeWatch(r.path)
		case r.request.Kind == contender.ReadPredecessor && isNoNode(reply.Err):
			d.observeDeparture()
		}
	case contender.List:
		if r.watch != nil {
			d.queue = r.watch
		}
	case contender.Replace:
		d.sent, d.own = r.sent, watched{name: r.request.To, watch: r.watch}
	}
	return contender.Input{Kind: contender.Replied, Request: r.request, Reply: r.reply}
}

// keepWatch keeps a watch on another contender, in the place of one on the same znode or of
// one that the state machine does not need any more.
func (d *driver) keepWatch(w watched) {
	slot := 0
	for i := range d.others {
		switch o := &d.others[i]; {
		case o.name == w.name:
			slot = i
		case o.watch == nil && d.others[slot].name != w.name:
			slot = i
		}
	}
	d.drop(&d.others[slot])
	d.others[slot] = w
}

// drop drops a watch.
func (d *driver) drop(w *watched) {
	ignoreDeparture(d.cfg.Conn, w.departure)
	*w = watched{}
}

// dropWatches drops the watches that the state machine does not wait for. They stay in the
// pool of the connection.
func (d *driver) dropWatches() {
	for i := range d.others {
		if o := &d.others[i]; o.watch != nil && !d.machine.Watches(o.name) {
			d.drop(o)
		}
	}
	if d.queue != nil && !d.machine.WatchesQueue() {
		d.queue = nil
	}
}

func (d *driver) execute(o *contender.Output) {
	switch o.Kind {
	case contender.Report:
		d.report(d.stateOf(&o.State))
		if o.State.Err != nil {
			d.timers = d.timers[:0]
			d.cancelReplace()
		}
	case contender.Set:
		d.setTimer(o.Timer, o.After)
	case contender.Stop:
		d.stopTimer(o.Timer)
	case contender.Prove:
		sent := time.Time{}
		if o.Fresh {
			sent = d.sent
		}
		d.sub.Prove(d.pathOf(o.Name), sent)
		d.proved = true
	case contender.Rest:
		d.sub.Rest()
	case contender.Moved:
		d.path = d.pathOf(o.Name)
		d.sub.Move(d.path, d.sent)
	case contender.Renamed:
		d.rename.Done <- o.Err
		d.rename = nil
	case contender.Departed:
		announceDeparture(d.cfg.Conn, d.pathOf(o.Name))
	case contender.Ignoring:
		d.cfg.Log.Warn("ignoring a child that is named like a candidate but is not ephemeral", "path", d.pathOf(o.Name))
	case contender.Removing:
		d.cfg.Log.Info("deleting an orphaned znode of the same candidate", "path", d.pathOf(o.Name))
	case contender.Bury:
		go d.deleteOutlived(d.pathOf(o.Name))
	case contender.Finish:
		d.err = o.Err
	}
}

// stateOf returns a state for the user.
func (d *driver) stateOf(s *contender.State) State {
	state := State{First: s.First, Proven: s.Proven, Session: s.Session, Token: s.Token, Err: s.Err}
	if s.First {
		state.Deadline = d.sub.Deadline
	}
	if s.Name != "" {
		state.Path = d.pathOf(s.Name)
	}
	if s.Predecessor != "" {
		state.Predecessor = d.pathOf(s.Predecessor)
	}
	return state
}

// pathOf returns the path of a child of the queue. It keeps that of the contender's znode.
func (d *driver) pathOf(name string) string {
	if len(d.path) > len(name) && d.path[len(d.path)-len(name):] == name && d.path[len(d.path)-len(name)-1] == '/' {
		return d.path
	}
	return path.Join(d.cfg.Dir, name)
}

// next waits for the next input. If the deletion of the contender's znode is known, it comes
// before all others: the server reports deletions in their order, and another input may bring
// the contender's turn.
func (d *driver) next(ctx context.Context) contender.Input {
	var in contender.Input
	switch {
	case d.deferred != nil:
		in, d.deferred = *d.deferred, nil
	case d.proved:
		d.proved, in.Kind = false, contender.ConnChanged
	case len(d.answered) > 0:
		in = d.receiveAnswer()
	default:
		in = d.wait(ctx)
	}
	if in.Kind == contender.Fired && in.Watch == contender.OwnWatch {
		return in
	}
	select {
	case event := <-d.own.watch.C():
		d.deferred = &in
		return d.ownFired(event)
	default:
		return in
	}
}

// wait blocks until there is an input.
func (d *driver) wait(ctx context.Context) contender.Input {
	var expired <-chan time.Time
	if d.timer != nil && len(d.timers) > 0 {
		expired = d.timer.C
	}
	renames := d.cfg.Renames
	if d.rename != nil || !d.machine.Holding() {
		renames = nil
	}
	select {
	case r := <-d.replies:
		return d.received(r)
	case event := <-d.own.watch.C():
		return d.ownFired(event)
	case event := <-d.others[0].watch.C():
		return d.otherFired(ctx, 0, event)
	case event := <-d.others[1].watch.C():
		return d.otherFired(ctx, 1, event)
	case event := <-d.queue.C():
		event = d.queue.Take(event)
		d.queue = nil
		return contender.Input{Kind: contender.Fired, Watch: contender.QueueWatch, Event: eventOf(event)}
	case <-d.sub.Changed():
		return contender.Input{Kind: contender.ConnChanged}
	case <-expired:
		return contender.Input{Kind: contender.Expired, Timer: d.popTimer()}
	case r := <-renames:
		return d.startRename(r)
	case <-ctx.Done():
		return contender.Input{Kind: contender.Leave, Err: context.Cause(ctx)}
	}
}

// nextReply waits for the next input of a contender that has left.
func (d *driver) nextReply() contender.Input {
	if len(d.answered) > 0 {
		return d.receiveAnswer()
	}
	select {
	case r := <-d.replies:
		return d.received(r)
	case <-d.sub.Changed():
		return contender.Input{Kind: contender.ConnChanged}
	}
}

// receiveAnswer takes the result of a request that this goroutine has executed.
func (d *driver) receiveAnswer() contender.Input {
	r := d.answered[0]
	if d.answered = d.answered[1:]; len(d.answered) == 0 {
		d.answered = nil
	}
	return d.receive(r)
}

// received takes a result from the channel.
func (d *driver) received(r result) contender.Input {
	if d.waiting--; d.waiting == 0 {
		d.replies = nil // an idle contender needs no channel
	}
	return d.receive(r)
}

func (d *driver) ownFired(event zk.Event) contender.Input {
	in := contender.Input{Kind: contender.Fired, Watch: contender.OwnWatch, Name: d.own.name, Event: eventOf(d.own.watch.Take(event))}
	d.own = watched{}
	return in
}

func (d *driver) otherFired(ctx context.Context, i int, event zk.Event) contender.Input {
	o := d.others[i]
	d.others[i] = watched{}
	defer ignoreDeparture(d.cfg.Conn, o.departure)
	in := contender.Input{Kind: contender.Fired, Watch: contender.OtherWatch, Name: o.name, Event: eventOf(o.watch.Take(event)), Safe: true}
	if in.Event == contender.Deleted {
		if d.machine.IsPredecessor(o.name) {
			d.observeDeparture()
		}
		in.Safe = o.departure == nil || heardDeparture(ctx, d.cfg.Conn, o.departure)
	}
	return in
}

// eventOf translates the event of a watch.
func eventOf(event zk.Event) contender.Event {
	switch {
	case errors.Is(event.Err, zk.ErrClosing):
		return contender.ConnClosed
	case event.Type == zk.EventNotWatching:
		return contender.SessionOver
	case event.Type == zk.EventNodeDeleted:
		return contender.Deleted
	}
	return contender.Changed
}

func (d *driver) observeWatch(path string) {
	if d.cfg.Observer != nil {
		d.cfg.Observer.Watched(path)
	}
}

func (d *driver) observeDeparture() {
	if d.cfg.Observer != nil {
		d.cfg.Observer.Vacated()
	}
}

// setTimer sets a timer, of which few are set at a time.
func (d *driver) setTimer(t contender.Timer, after time.Duration) {
	d.removeTimer(t)
	d.timers = append(d.timers, deadline{t, time.Now().Add(after)})
	d.schedule()
}

func (d *driver) stopTimer(t contender.Timer) {
	d.removeTimer(t)
	d.schedule()
}

func (d *driver) removeTimer(t contender.Timer) {
	for i := range d.timers {
		if d.timers[i].timer == t {
			d.timers = append(d.timers[:i], d.timers[i+1:]...)
			return
		}
	}
}

// firstTimer returns the index of the timer that expires first.
func (d *driver) firstTimer() int {
	first := 0
	for i := range d.timers {
		if d.timers[i].at.Before(d.timers[first].at) {
			first = i
		}
	}
	return first
}

// schedule sets the clock's timer.
func (d *driver) schedule() {
	if len(d.timers) == 0 {
		if d.timer != nil {
			d.timer.Stop()
		}
		return
	}
	after := time.Until(d.timers[d.firstTimer()].at)
	if d.timer == nil {
		d.timer = time.NewTimer(after)
	} else {
		d.timer.Reset(after)
	}
}

// popTimer removes and returns the timer that expires first.
func (d *driver) popTimer() contender.Timer {
	t := d.timers[d.firstTimer()].timer
	d.stopTimer(t)
	return t
}

func isNoNode(err error) bool { return errors.Is(err, zk.ErrNoNode) }

// deleteOutlived deletes a znode of an expired session, in the next session. It tries for a
// session timeout.
func (d *driver) deleteOutlived(path string) {
	ctx, cancel := context.WithTimeout(context.Background(), session.Timeout(d.cfg.Conn, d.cfg.Timeout))
	defer cancel()
	if err := request.Retry(ctx, d.cfg.Conn, func() error { return d.cfg.Conn.Delete(path, -1) }); err == nil {
		d.cfg.Log.Info("deleted the znode of an expired session", "path", path)
	}
}
