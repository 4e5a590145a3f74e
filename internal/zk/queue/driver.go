package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// driver executes the outputs of one contender's state machine and provides its inputs. Only the goroutine of Run
// uses the driver, and afterwards only the goroutine of the removal.
type driver struct {
	cfg     *Config
	machine *contender.Contender
	report  func(State)
	sub     *connection.Subscription
	plain   *plainContender // nil unless the names contain no GUID

	proved bool // Prove was called; the next input is ConnChanged, because the lease may be valid
	// checkWatches is set if the next input must be a result of connChanged: a watch may have fired whose channel
	// receives nothing.
	checkWatches  bool
	waiting       uint8      // the number of requests that other goroutines execute
	answered      []*result  // the results of requests that this goroutine has executed
	answeredArray [1]*result // the array of answered while it contains one result, which avoids an allocation
	// deferred is the next input, or nil: the input that starts the contender, or an input that was postponed because
	// of the deletion of the contender's znode.
	deferred *frame
	replies  chan *result // receives the results of requests in other goroutines; nil while no request is in progress
	requests *requests    // nil while no request is in progress, unless a request has failed
	// stopReplace ends the retries of a Replace; nil if no Replace is in progress.
	stopReplace context.CancelFunc

	watches [slots]watched

	path string    // the path of the contender's znode
	sent time.Time // when the create was sent, if it was answered, or when the last Replace was sent

	timers []deadline
	timer  *time.Timer // fires when the first of timers expires

	rename     *Rename // the rename in progress, or nil
	persistent string  // the path of the predecessor about which a warning was logged
	err        error   // the error of the removal
}

func newDriver(cfg *Config, report func(State)) *driver {
	cfg.CanMakeQueue = cfg.MakeDir != nil
	d := &driver{
		cfg: cfg, report: report, sub: cfg.Subscribe(),
		machine: contender.New(&cfg.Config), deferred: input(contender.Start),
	}
	d.answered = d.answeredArray[:0]
	if !cfg.Naming.HasGUID() {
		d.plain = joinPlain(cfg)
	}
	if cfg.Observer != nil {
		d.sub.OnCheck(cfg.Observer.Checked)
	}
	return d
}

// finish steps the state machine until the removal is complete, and returns the error of the removal.
func (d *driver) finish() error {
	defer d.close()
	for !d.machine.Done() {
		d.step(d.next(context.Background()))
	}
	if d.err != nil {
		d.cfg.Log.Warn("could not remove the znode", "path", d.path, "err", d.err)
	}
	return d.err
}

// close releases what the contender shares with other contenders on the connection.
func (d *driver) close() {
	d.sub.Close()
	if d.waiting > 0 {
		d.requests.end()
	}
	d.cancelReplace()
	if d.plain != nil {
		d.plain.leave()
	}
}

// cancelReplace ends the retries of a Replace whose result does not matter any more.
func (d *driver) cancelReplace() {
	if d.stopReplace != nil {
		d.stopReplace()
		d.stopReplace = nil
	}
}

// frame is the memory of one step. Frames come from a pool, because they are large, and an idle contender needs no
// frame.
type frame struct {
	in  contender.Input
	out []contender.Output
}

var frames = sync.Pool{New: func() any { return new(frame) }}

// step passes the input of f to the state machine and executes its outputs.
func (d *driver) step(f *frame) {
	f.out = d.machine.Step(d.sub.State(), &f.in, f.out[:0])
	last := -1 // the index of the last request
	for i := range f.out {
		if f.out[i].Kind == contender.Send {
			last = i
		}
	}
	for i := range f.out {
		if o := &f.out[i]; o.Kind == contender.Send {
			d.send(&o.Request, i == last)
		} else {
			d.execute(o)
		}
	}
	d.dropWatches()
	clear(f.out)
	f.in = contender.Input{}
	frames.Put(f)
}

// input returns a frame from the pool, whose input has the kind kind.
func input(kind contender.InputKind) *frame {
	f := frames.Get().(*frame)
	f.in.Kind = kind
	return f
}

// send executes a request: on this goroutine if Config.Alone is set and the request is the last request of the
// step, otherwise on another goroutine. A holder does not wait for a reply, because it must notice the expiry of
// its lease.
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
		d.requests = &requests{cfg: d.cfg, plain: d.plain}
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
	go d.requests.send(res, d.replies)
}

// receive records the result of a request, and returns the reply as an input.
func (d *driver) receive(r *result) *frame {
	reply := &r.reply
	switch kind := r.request.Kind; {
	case kind == contender.Replace && reply.Err == nil:
		d.path, d.sent, d.watches[ownSlot] = r.path, r.sent, watched{path: r.path, watch: r.watch}
	case kind == contender.ReadPredecessor && isNoNode(reply.Err):
		d.observeDeparture()
	case reply.Err != nil:
	case kind == contender.Delete:
		announceDeparture(d.cfg.Conn, r.path)
	case kind == contender.Create:
		d.path, d.sent = r.path, r.sent
	case kind == contender.ReadOwn:
		d.watches[ownSlot] = d.watchedBy(r)
		d.observeWatch(r.path)
	case kind == contender.ReadPredecessor, kind == contender.ReadBefore:
		w := d.watchedBy(r)
		if reply.Owner == d.cfg.Conn.SessionID() {
			w.departure = expectDeparture(d.cfg.Conn, r.path)
		}
		d.keepWatch(w)
		d.observeWatch(r.path)
		d.warnOfPersistent(r)
	case r.watch != nil:
		d.keepWatch(watched{watch: r.watch})
	}
	f := input(contender.Replied)
	f.in.Request, f.in.Reply = r.request, r.reply
	*r = result{}
	results.Put(r)
	return f
}

// warnOfPersistent logs one warning if the contender waits for a znode that is persistent, so that the end of a
// session does not delete it.
func (d *driver) warnOfPersistent(r *result) {
	if r.request.Kind != contender.ReadPredecessor || r.reply.Ephemeral || !contender.Recognized(r.request.Name) || r.path == d.persistent {
		return
	}
	d.persistent = r.path
	d.cfg.Log.Warn("waiting for a contender whose znode is persistent, so that the end of a session does not delete it: "+
		"delete the znode unless a program uses it", "path", r.path)
}

// execute executes an output of the state machine other than Send.
func (d *driver) execute(o *contender.Output) {
	switch o.Kind {
	case contender.Report:
		if d.cfg.Rotation != nil {
			d.cfg.Rotation.observe(o.State.Predecessor)
		}
		d.report(d.stateOf(&o.State))
		if o.State.Err != nil {
			d.cancelReplace()
		}
		if d.machine.Leaving() { // before that, the contender looks for the reason of a deletion, and needs its timers
			d.timers = d.timers[:0]
			if d.timer != nil {
				d.timer.Stop()
			}
		}
	case contender.Set:
		d.setTimer(o.Timer, o.After)
	case contender.Stop:
		d.stopTimer(o.Timer)
	case contender.Prove:
		d.sub.Prove(d.pathOf(o.Name), d.sent)
		d.proved = true
	case contender.Rest:
		d.sub.StopProving()
	case contender.Renamed:
		d.rename.Done <- o.Err
		d.rename = nil
	case contender.Ignoring:
		d.cfg.Log.Warn("ignoring a child that is named like a candidate but is not ephemeral",
			"path", d.pathOf(o.Name), "children", o.Count)
	case contender.Removing:
		d.cfg.Log.Info("deleting an orphaned znode of the same candidate", "path", d.pathOf(o.Name))
	case contender.Bury:
		go d.deleteOutlived(d.pathOf(o.Name))
	case contender.Finish:
		d.err = o.Err
	}
}

// stateOf returns the State for the user of the queue that corresponds to a state of the machine.
func (d *driver) stateOf(s *contender.State) State {
	state := State{Next: s.Next, First: s.First, Proven: s.Proven, Session: s.Session, Token: s.Token, Err: s.Err}
	if s.First {
		state.Lease = d.sub
	}
	if s.Name != "" {
		state.Path = d.pathOf(s.Name)
	}
	if s.Predecessor != "" {
		state.Predecessor = d.pathOf(s.Predecessor)
	}
	return state
}

// pathOf returns the path of a child of the queue. If the driver already keeps a string with this path, pathOf
// returns that string, which saves memory.
func (d *driver) pathOf(name string) string {
	for _, known := range [...]string{d.path, d.watches[firstSlot].path, d.watches[secondSlot].path} {
		if nameOf(known) == name {
			return known
		}
	}
	return join(d.cfg.Dir, name)
}

// join returns the path of a child of a znode. It allocates less than path.Join.
func join(dir, name string) string { return strings.TrimSuffix(dir, "/") + "/" + name }

func isNoNode(err error) bool { return errors.Is(err, zk.ErrNoNode) }

// deleteOutlived deletes a znode of an expired session, on the connection of the next session. It gives up after a
// session timeout.
func (d *driver) deleteOutlived(path string) {
	ctx, cancel := context.WithTimeout(context.Background(), connection.SessionTimeout(d.cfg.Conn, d.cfg.Timeout))
	defer cancel()
	if err := connection.Retry(ctx, d.cfg.Conn, func() error { return d.cfg.Conn.Delete(path, -1) }); err == nil {
		d.cfg.Log.Info("deleted the znode of an expired session", "path", path)
	}
}

// startRename returns the input that starts a rename to a name of another kind, with the same GUID and sequence
// number.
func (d *driver) startRename(r Rename) *frame {
	name, base := d.machine.Name(), d.cfg.Naming.Base()
	i := strings.LastIndex(name, base)
	d.rename = &r
	f := input(contender.Rename)
	f.in.Name = name[:i] + r.To.Base() + name[i+len(base):]
	return f
}

// deadline is the time at which a timer of the state machine expires.
type deadline struct {
	timer contender.Timer
	at    time.Time
}

// setTimer sets a timer of the state machine. schedule starts the time.Timer when the driver waits.
func (d *driver) setTimer(t contender.Timer, after time.Duration) {
	d.stopTimer(t)
	d.timers = append(d.timers, deadline{t, time.Now().Add(after)})
}

func (d *driver) stopTimer(t contender.Timer) {
	d.timers = slices.DeleteFunc(d.timers, func(other deadline) bool { return other.timer == t })
}

// schedule starts the time.Timer for the first timer that expires, and returns its channel, or nil if no timer is
// set.
func (d *driver) schedule() <-chan time.Time {
	if len(d.timers) == 0 {
		return nil
	}
	after := time.Until(d.firstTimer().at)
	if d.timer == nil {
		d.timer = time.NewTimer(after)
	} else {
		d.timer.Reset(after)
	}
	return d.timer.C
}

// firstTimer returns the timer that expires first.
func (d *driver) firstTimer() deadline {
	return slices.MinFunc(d.timers, func(a, b deadline) int { return a.at.Compare(b.at) })
}
