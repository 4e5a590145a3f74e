package queue

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
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
	record  stepFunc // if not nil, it is called instead of machine.Step
	report  func(State)
	sub     *session.Subscription
	plain   *plainContender // nil unless the names contain no GUID

	started   bool         // Start was passed to the machine
	proved    bool         // the state of the lease may have changed
	scheduled bool         // timer is started for the first of timers
	answered  []*result    // of requests that this goroutine has executed
	deferred  *frame       // an input that the deletion of the contender's znode precedes
	replies   chan *result // nil while there are no requests in goroutines
	requests  *requests    // nil while there are no requests, unless one has failed
	// stopReplace ends the repetition of a Replace; nil if there is none.
	stopReplace context.CancelFunc
	waiting     int // the number of such requests

	event  zk.Event   // the last one that was received
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
	path  string
	watch *watch.Watch
	// departure is set if the znode belongs to another contender of the same session.
	departure *departure
}

// deadline is when a timer expires.
type deadline struct {
	timer contender.Timer
	at    time.Time
}

// stepFunc is the type of contender.Contender.Step.
type stepFunc = func(contender.Conn, *contender.Input, []contender.Output) []contender.Output

// Record is nil, except in tests that record the steps of all contenders: see package trace, whose
// Recorder.Contender it then is. It must not be changed after the first contender has joined.
var Record func(*contender.Config) (*contender.Contender, stepFunc)

func newDriver(cfg *Config, report func(State)) *driver {
	cfg.CanMakeQueue = cfg.MakeDir != nil
	d := &driver{cfg: cfg, report: report, sub: session.Subscribe(cfg.Conn, cfg.Timeout)}
	if Record != nil {
		d.machine, d.record = Record(&cfg.Config)
	} else {
		d.machine = contender.New(&cfg.Config)
	}
	if _, ok := cfg.Naming.Plain(); ok {
		d.plain = joinPlain(cfg)
	}
	d.sub.CheckEvery(cfg.CheckInterval)
	d.sub.LogTo(cfg.Log)
	if cfg.Observer != nil {
		d.sub.OnCheck(cfg.Observer.Checked)
	}
	return d
}

// finish completes the removal after the contender has left, and returns its error.
func (d *driver) finish() error {
	defer d.close()
	for !d.machine.Done() {
		d.step(d.nextReply())
	}
	if d.err != nil {
		d.cfg.Log.Warn("could not remove the znode", "path", d.path, "err", d.err)
	}
	return d.err
}

// close ends the contender's use of what contenders share.
func (d *driver) close() {
	d.sub.Close()
	if d.requests != nil {
		d.requests.over()
	}
	d.cancelReplace()
	if d.plain != nil {
		d.plain.leave()
	}
}

// cancelReplace ends the repetition of a Replace, whose result does not matter any more.
func (d *driver) cancelReplace() {
	if d.stopReplace != nil {
		d.stopReplace()
		d.stopReplace = nil
	}
}

// frame is the memory of one step. Frames are pooled, because they are large, and an idle
// contender needs none.
type frame struct {
	in  contender.Input
	out []contender.Output
}

var frames = sync.Pool{New: func() any { return new(frame) }}

// step passes the input of f to the state machine and executes its outputs.
func (d *driver) step(f *frame) {
	s := d.sub.State()
	conn := contender.Conn{
		Session: s.Session, Up: s.Up, Closed: s.Closed, Epoch: s.Epoch,
		Missing: s.Missing, Proven: s.Proven, Lapses: s.Lapses,
	}
	if d.record != nil {
		f.out = d.record(conn, &f.in, f.out[:0])
	} else {
		f.out = d.machine.Step(conn, &f.in, f.out[:0])
	}
	sends := 0
	for i := range f.out {
		if f.out[i].Kind == contender.Send {
			sends++
		}
	}
	for i := range f.out {
		o := &f.out[i]
		if o.Kind == contender.Send {
			sends--
			d.send(&o.Request, sends == 0)
		} else {
			d.execute(o)
		}
	}
	d.dropWatches()
	clear(f.out)
	f.in = contender.Input{}
	frames.Put(f)
}

// input returns a frame for an input of this kind.
func input(kind contender.InputKind) *frame {
	f := frames.Get().(*frame)
	f.in.Kind = kind
	return f
}

// send executes a request: on this goroutine if the contender is alone and the request is the
// last one of the step. A holder does not wait for a reply, because it must notice the end of its
// lease.
func (d *driver) send(q *contender.Request, last bool) {
	res := results.Get().(*result)
	res.request = *q
	if q.Name != "" {
		res.path = d.pathOf(q.Name)
	}
	if q.Kind == contender.Replace {
		d.cancelReplace()
		res.ctx, d.stopReplace = context.WithCancel(context.Background())
	}
	if d.requests == nil {
		d.requests = newRequests(d.cfg, d.plain)
	}
	if d.cfg.Alone && last && !d.machine.Holding() {
		d.requests.perform(res)
		d.answered = append(d.answered, res)
		return
	}
	if d.replies == nil {
		d.replies = make(chan *result, 4)
	}
	d.waiting++
	go func(requests *requests, replies chan<- *result) {
		requests.perform(res)
		replies <- res
	}(d.requests, d.replies)
}

// receive notes the result of a request, and returns it as an input.
func (d *driver) receive(r *result) *frame {
	reply := &r.reply
	switch r.request.Kind {
	case contender.Create:
		if reply.Err == nil {
			d.path, d.session, d.sent = r.path, reply.Session, r.sent
		}
	case contender.ReadOwn:
		if reply.Err == nil {
			d.session = reply.Owner
			d.own = d.watchedBy(r)
			d.observeWatch(r.path)
		}
	case contender.ReadPredecessor, contender.ReadBefore:
		switch {
		case reply.Err == nil:
			w := d.watchedBy(r)
			if reply.Owner == d.session {
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
		d.sent, d.own = r.sent, watched{path: r.path, watch: r.watch}
	}
	f := input(contender.Replied)
	f.in.Request, f.in.Reply = r.request, r.reply
	*r = result{}
	results.Put(r)
	return f
}

// watchedBy returns the znode that a request has read, and makes the name in the request a part
// of its path: the machine and the watch then keep the same string.
func (d *driver) watchedBy(r *result) watched {
	r.request.Name = nameOf(r.path)
	return watched{path: r.path, watch: r.watch}
}

// nameOf returns the last element of a path, as a part of it.
func nameOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// keepWatch keeps a watch on another contender, in the place of one on the same znode or of
// one that the state machine does not need any more.
func (d *driver) keepWatch(w watched) {
	slot := 0
	for i := range d.others {
		switch o := &d.others[i]; {
		case o.path == w.path:
			slot = i
		case o.watch == nil && d.others[slot].path != w.path:
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
		if o := &d.others[i]; o.watch != nil && !d.machine.Watches(nameOf(o.path)) {
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
			if d.timer != nil {
				d.timer.Stop()
			}
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

// pathOf returns the path of a child of the queue: the one that the driver keeps, if it does.
func (d *driver) pathOf(name string) string {
	for _, known := range [...]string{d.path, d.others[0].path, d.others[1].path} {
		if nameOf(known) == name {
			return known
		}
	}
	return path.Join(d.cfg.Dir, name)
}

// next waits for the next input. If the deletion of the contender's znode is known, it comes
// before all others: the server reports deletions in their order, and another input may bring
// the contender's turn.
func (d *driver) next(ctx context.Context) *frame {
	f := d.nextReady()
	if f == nil {
		f = d.wait(ctx)
	}
	return d.ownFirst(f)
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

// ownFirst returns f, or the event of the contender's znode if it has occurred; then f follows.
//
//go:noinline // the frame of next is that of an idle contender
func (d *driver) ownFirst(f *frame) *frame {
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

// wait blocks until there is an input. Its frame is small, because idle candidates are numerous
// and a larger one would double their stacks. So it omits what only contenders for locks need.
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
		return input(contender.ConnChanged)
	case <-d.schedule():
		return d.timerExpired()
	case <-ctx.Done():
		return leaveInput(ctx)
	}
}

// waitForAll is wait for all kinds of inputs.
//
//go:noinline // see wait
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
		return input(contender.ConnChanged)
	case <-d.schedule():
		return d.timerExpired()
	case r := <-d.renames():
		return d.startRename(r)
	case <-ctx.Done():
		return leaveInput(ctx)
	}
}

// renames returns the channel of requests for another name if one can be served.
func (d *driver) renames() <-chan Rename {
	if d.rename != nil || !d.machine.Holding() {
		return nil
	}
	return d.cfg.Renames
}

//go:noinline // see wait
func (d *driver) queueFired() *frame {
	f := input(contender.Fired)
	f.in.Watch, f.in.Event = contender.QueueWatch, eventOf(d.queue.Take(d.event))
	d.queue = nil
	return f
}

//go:noinline // see wait
func (d *driver) timerExpired() *frame {
	f := input(contender.Expired)
	f.in.Timer = d.popTimer()
	return f
}

//go:noinline // see wait
func leaveInput(ctx context.Context) *frame {
	f := input(contender.Leave)
	f.in.Err = context.Cause(ctx)
	return f
}

// nextReply waits for the next input of a contender that has left.
func (d *driver) nextReply() *frame {
	if len(d.answered) > 0 {
		return d.receiveAnswer()
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

//go:noinline // see wait
func (d *driver) ownFired() *frame {
	f := input(contender.Fired)
	f.in.Watch, f.in.Name, f.in.Event = contender.OwnWatch, nameOf(d.own.path), eventOf(d.own.watch.Take(d.event))
	d.own = watched{}
	return f
}

//go:noinline // see wait
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

// setTimer sets a timer, of which few are set at a time. The clock's timer is started when the
// driver waits.
func (d *driver) setTimer(t contender.Timer, after time.Duration) {
	d.stopTimer(t)
	d.timers = append(d.timers, deadline{t, time.Now().Add(after)})
}

func (d *driver) stopTimer(t contender.Timer) {
	d.timers = slices.DeleteFunc(d.timers, func(other deadline) bool { return other.timer == t })
	d.scheduled = false
}

// schedule starts the clock's timer for the timer that expires first, and returns its channel,
// or nil if there is none.
//
//go:noinline // see wait
func (d *driver) schedule() <-chan time.Time {
	if len(d.timers) == 0 {
		return nil
	}
	if !d.scheduled {
		d.scheduled = true
		after := time.Until(d.timers[d.firstTimer()].at)
		if d.timer == nil {
			d.timer = time.NewTimer(after)
		} else {
			d.timer.Reset(after)
		}
	}
	return d.timer.C
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
