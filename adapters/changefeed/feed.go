package changefeed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/latest"
)

// errSilent ends a watch that has not reported a write for too long. The feed starts another.
var errSilent = errors.New("changefeed: the watch did not report a change of the record")

// missingRetry is how long a feed waits before it watches again what did not exist.
const missingRetry = 100 * time.Millisecond

// A watch can be late permanently: a MongoDB sharded cluster reports a write when every shard
// has passed its time, which takes ten seconds by default if a shard is idle. Such a feed must
// neither end nor make its readers wait for the watch.
const (
	// lateReads is how many times in each quiet time the record is read while the watch is
	// late.
	lateReads = 4
	// lateFor is for how many quiet times a watch counts as late after it was late.
	lateFor = 16
	// patience is for how many quiet times a watch may fail to report a known write before
	// it is replaced. It doubles with each replacement, up to maxPatience.
	patience, maxPatience = 2, 32
)

// Subscribe implements [Store.Subscribe]. It returns immediately; errors of the watch are
// returned by Next of the feed.
func (s *Feeds) Subscribe(ctx context.Context) (Feed, error) {
	_, end, err := s.Begin(ctx)
	if err != nil {
		return nil, err
	}
	end()
	f := &feed{
		feeds: s, patience: patience * s.quiet,
		events: make(chan Event, 1), ended: make(chan struct{}), done: make(chan struct{}),
	}
	f.ctx, f.cancel = context.WithCancel(s.ctx)
	if err := s.Go(f.run); err != nil {
		f.cancel()
		return nil, err
	}
	return f, nil
}

// feed is a [Feed] of [Feeds]. Its goroutine, run, owns the last group of fields.
type feed struct {
	feeds  *Feeds
	ctx    context.Context // ctx is done when the feed or the store is closed.
	cancel context.CancelFunc
	events chan Event    // events contains the newest event, until Next returns it.
	ended  chan struct{} // ended is closed after err was set.
	err    error
	done   chan struct{} // done is closed when all goroutines of the feed have returned.

	watches  sync.WaitGroup
	started  bool          // started reports whether there was an event.
	last     Event         // last is the last event.
	ahead    bool          // ahead reports whether the last event was read, and not reported yet.
	timely   bool          // timely reports whether a watch has reported a write in time.
	unheard  time.Time     // unheard is when a read showed a write that was not reported, or zero.
	late     time.Time     // late is until when the watch counts as late.
	patience time.Duration // patience is how long a watch may be silent about a known write.
}

// Next implements [Feed].
func (f *feed) Next(ctx context.Context) (Event, error) {
	select { // These take precedence over an event.
	case <-f.ended:
		return Event{}, f.failure()
	case <-f.ctx.Done():
		return Event{}, ErrClosed
	case <-ctx.Done():
		return Event{}, ctx.Err()
	default:
	}
	select {
	case e := <-f.events:
		return e, nil
	case <-f.ended:
		return Event{}, f.failure()
	case <-f.ctx.Done():
		return Event{}, ErrClosed
	case <-ctx.Done():
		return Event{}, ctx.Err()
	}
}

// failure is the error of a feed that has ended.
func (f *feed) failure() error {
	if f.ctx.Err() != nil {
		return ErrClosed
	}
	return f.err
}

// Close implements [Feed].
func (f *feed) Close() error {
	f.cancel()
	await(f.done)
	return nil
}

func (f *feed) run() {
	defer close(f.done)
	f.err = f.follow()
	if f.ctx.Err() != nil {
		f.err = ErrClosed
	}
	close(f.ended) // before waiting for the driver
	f.watches.Wait()
}

// follow runs one watch after the other until the feed ends.
func (f *feed) follow() error {
	for {
		err := f.followWatch()
		switch {
		case err == nil:
		case errors.Is(err, errSilent):
			f.patience = min(2*f.patience, maxPatience*f.feeds.quiet)
		case errors.Is(err, ErrNoRecord):
			f.deliver(Event{Missing: true})
			select {
			case <-f.ctx.Done():
				return ErrClosed
			case <-time.After(missingRetry):
			}
		default:
			return err
		}
	}
}

// establishLimit is the time in which a watch must be established, at least. It includes the time
// to connect, which can be longer than the quiet time.
const establishLimit = 10 * time.Second

// followWatch starts a watch and follows its reports until it ends or must be replaced. It does
// not wait for the watch function to return.
func (f *feed) followWatch() error {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	reports, ended := make(chan Event), make(chan error, 1)
	f.watches.Go(func() {
		ended <- f.feeds.watch(ctx, func(e Event) {
			select {
			case reports <- e:
			case <-ctx.Done():
			}
		})
	})
	f.unheard = time.Time{}
	establish := max(f.feeds.quiet, establishLimit)
	quiet := time.NewTimer(establish) // until the first report
	defer quiet.Stop()
	if f.feeds.quiet == 0 {
		quiet.Stop()
	}
	established := false
	for {
		var err error
		select {
		case <-f.ctx.Done():
			return ErrClosed
		case err := <-ended:
			return err
		case e := <-reports:
			first := !established
			established = true
			err = f.take(e, first)
		case <-quiet.C:
			if !established {
				return fmt.Errorf("changefeed: the watch was not established within %v", establish)
			}
			err = f.check()
		}
		if err != nil {
			return err
		}
		if f.feeds.quiet > 0 {
			quiet.Reset(f.pace())
		}
	}
}

// pace is how long the feed waits for a report before it reads the record.
func (f *feed) pace() time.Duration {
	if !f.timely || !f.unheard.IsZero() || time.Now().Before(f.late) {
		return f.feeds.quiet / lateReads
	}
	return f.feeds.quiet
}

// check reads the record while the watch is silent. If the read shows a write that the watch
// has still not reported at the next check, the watch is late.
func (f *feed) check() error {
	now := time.Now()
	if !f.unheard.IsZero() {
		f.late = now.Add(lateFor * f.feeds.quiet)
	}
	news, err := f.read()
	switch {
	case err != nil:
		return fmt.Errorf("after the quiet time: %w", err)
	case !news:
	case f.unheard.IsZero():
		f.unheard = now
	case now.Sub(f.unheard) >= f.patience:
		return errSilent
	}
	return nil
}

// take handles a report of the watch.
func (f *feed) take(e Event, first bool) error {
	if first && e == (Event{}) {
		_, err := f.read()
		return err
	}
	known := !f.unheard.IsZero() // A read has shown this write already, or a later one.
	f.unheard = time.Time{}
	news := false
	switch {
	case e != (Event{}) && (e.Hint && f.heartbeat(e.Record) || !e.Hint && (f.follows(e) || f.repeats(e))):
		f.ahead = false
		news = f.deliver(e)
	case e != (Event{}) && !e.Hint && f.ahead && f.sameEpoch(e) && e.Record.Seq <= f.last.Record.Seq:
		// A read was faster than the watch.
	default:
		var err error
		if news, err = f.read(); err != nil {
			return err
		}
	}
	f.timely = f.timely || news || known
	return nil
}

// read reads the record, and reports whether it has changed since the last event.
func (f *feed) read() (news bool, err error) {
	ctx, cancel := f.ctx, func() {}
	if f.feeds.quiet > 0 {
		ctx, cancel = context.WithTimeout(f.ctx, f.feeds.quiet)
	}
	defer cancel()
	r, err := f.feeds.read(ctx)
	if err != nil && !errors.Is(err, ErrNoRecord) {
		return false, err
	}
	e := Event{Record: r, Missing: err != nil}
	proof := f.last.Hint && f.sameEpoch(e) && r.Seq == f.last.Record.Seq && r.Version == f.last.Record.Version
	news = f.deliver(e) && !proof // The watch has reported what a hint has named.
	f.ahead = f.ahead || news
	return news, nil
}

// deliver sends e to the reader, unless it repeats the last event.
func (f *feed) deliver(e Event) bool {
	if f.repeats(e) {
		return false
	}
	f.started, f.last = true, e
	latest.Send(f.events, e)
	return true
}

// heartbeat reports whether r claims no more than that the leader of the last event has written
// the next heartbeat.
func (f *feed) heartbeat(r Record) bool {
	next := f.last.Record
	next.Seq, next.Version, next.Time = next.Seq+1, r.Version, r.Time
	return f.started && !f.last.Missing && next.Leader != "" && r == next
}

// follows reports whether e certainly is a later state than the last event.
func (f *feed) follows(e Event) bool {
	return !f.started || f.sameEpoch(e) && e.Record.Seq > f.last.Record.Seq
}

// repeats reports whether e adds nothing to the last event. A record that was read after a hint of
// it does: it is proof. A write that was lost in a failover has a Seq that is issued again, with
// another version.
func (f *feed) repeats(e Event) bool {
	r, last := e.Record, f.last.Record
	switch {
	case !f.started || f.last.Hint:
		return false
	case e.Missing:
		return f.last.Missing
	}
	return f.sameEpoch(e) && r.Seq == last.Seq && r.Version == last.Version
}

func (f *feed) sameEpoch(e Event) bool {
	return !e.Missing && !f.last.Missing && e.Record.Epoch == f.last.Record.Epoch
}
