package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// errSilent is the error of runWatch if the watch does not report a write that a read has shown. The feed then starts
// another watch.
var errSilent = errors.New("changefeed: the watch did not report a change of the record")

// missingPause is how long a feed waits before it watches a missing record again.
const missingPause = 100 * time.Millisecond

// minEstablishLimit is the minimum of the time limit for establishing a watch. That takes the time to connect, which
// can be longer than the quiet time. For feeds without a quiet time, it is also the limit of each read.
const minEstablishLimit = 10 * time.Second

// Some watches always report writes late. For example, a sharded cluster of MongoDB reports a write when all shards
// have passed its time, which takes ten seconds by default if a shard is idle. The feed of such a watch must not end,
// and its readers must not have to wait for the watch. So the feed also reads the record.
const (
	// lateReads is how often the record is read in each quiet time while the feed considers the watch late.
	lateReads = 4
	// lateTimes is for how many quiet times a feed considers a watch late after the watch was last seen to be late.
	lateTimes = 16
	// silentTimes is the number of quiet times after which a feed replaces a watch that does not report a write
	// that a read has shown. It doubles with each replacement, up to maxSilentTimes.
	silentTimes, maxSilentTimes = 2, 32
)

// Subscribe implements [changefeed.Store.Subscribe]. It returns immediately; errors of the watch are
// returned by Next of the feed.
func (s *Feeds) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	_, end, err := s.Begin(ctx)
	if err != nil {
		return nil, err
	}
	end()
	f := &feed{
		feeds: s, silentLimit: silentTimes * s.quiet,
		events: make(chan changefeed.Event, 1), ended: make(chan struct{}), done: make(chan struct{}),
	}
	f.ctx, f.cancel = context.WithCancel(s.ctx)
	if err := s.Go(f.run); err != nil {
		f.cancel()
		return nil, err
	}
	return f, nil
}

// feed is a [changefeed.Feed] of [Feeds]. The goroutine of run owns the last group of fields.
type feed struct {
	feeds  *Feeds
	ctx    context.Context // ctx is done when the feed or the store is closed.
	cancel context.CancelFunc
	events chan changefeed.Event // events contains the newest event, until Next returns it.
	ended  chan struct{}         // ended is closed after err was set.
	err    error
	done   chan struct{} // done is closed when all goroutines of the feed have returned.

	watches         sync.WaitGroup
	started         bool             // started reports whether there was an event yet, so that last is valid.
	last            changefeed.Event // last is the newest event that was passed to the reader.
	lastIsRead      bool             // lastIsRead means that last was read, and that no report has confirmed it yet.
	timely          bool             // timely means that a watch was seen to report a write in time.
	unreportedSince time.Time        // unreportedSince is when a read first showed a write that was not reported, or zero.
	lateUntil       time.Time        // lateUntil is until when the feed considers the watch late.
	silentLimit     time.Duration    // silentLimit is how long a watch may fail to report a write that a read has shown.
}

// Next implements [changefeed.Feed].
func (f *feed) Next(ctx context.Context) (changefeed.Event, error) {
	select { // Check ended first, so that an error takes precedence over an event.
	case <-f.ended:
		return changefeed.Event{}, f.endError()
	case <-f.ctx.Done():
		return changefeed.Event{}, changefeed.ErrClosed
	case <-ctx.Done():
		return changefeed.Event{}, ctx.Err()
	default:
	}
	select {
	case e := <-f.events:
		return e, nil
	case <-f.ended:
		return changefeed.Event{}, f.endError()
	case <-f.ctx.Done():
		return changefeed.Event{}, changefeed.ErrClosed
	case <-ctx.Done():
		return changefeed.Event{}, ctx.Err()
	}
}

// endError returns the error of a feed that has ended.
func (f *feed) endError() error {
	if f.ctx.Err() != nil {
		return changefeed.ErrClosed
	}
	return f.err
}

// Close implements [changefeed.Feed].
func (f *feed) Close() error {
	f.cancel()
	waitToClose(f.done)
	return nil
}

// run runs one watch after the other until the feed ends.
func (f *feed) run() {
	defer close(f.done)
	f.err = f.runWatches()
	close(f.ended) // Close ended before the watches return, so that readers do not wait for the driver.
	f.watches.Wait()
}

func (f *feed) runWatches() error {
	for {
		err := f.runWatch()
		switch {
		case err == nil:
		case errors.Is(err, errSilent):
			f.silentLimit = min(2*f.silentLimit, maxSilentTimes*f.feeds.quiet)
		case errors.Is(err, changefeed.ErrNoRecord):
			f.deliver(changefeed.Event{Missing: true})
			if limit.Pause(f.ctx, missingPause) != nil {
				return changefeed.ErrClosed
			}
		default:
			return err
		}
	}
}

// runWatch starts a watch and handles its reports until it ends or must be replaced. Then it returns, without waiting
// for the watch function to return.
func (f *feed) runWatch() error {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	reports, ended := make(chan changefeed.Event), make(chan error, 1)
	f.watches.Go(func() {
		ended <- f.feeds.watch(ctx, func(e changefeed.Event) {
			select {
			case reports <- e:
			case <-ctx.Done():
			}
		})
	})
	f.unreportedSince = time.Time{}
	establishLimit := max(f.feeds.quiet, minEstablishLimit)
	timer := time.NewTimer(establishLimit)
	defer timer.Stop()
	if f.feeds.quiet == 0 {
		timer.Stop()
	}
	established := false
	for {
		var err error
		select {
		case <-f.ctx.Done():
			return changefeed.ErrClosed
		case err := <-ended:
			return err
		case e := <-reports:
			first := !established
			established = true
			err = f.handleReport(e, first)
		case <-timer.C:
			if !established {
				return fmt.Errorf("changefeed: the watch was not established within %v", establishLimit)
			}
			err = f.checkWatch()
		}
		if err != nil {
			return err
		}
		if f.feeds.quiet > 0 {
			timer.Reset(f.readInterval())
		}
	}
}

// readInterval returns how long the feed waits for a report of the watch before it reads the record: the quiet time,
// or a part of it if the watch is not known to report writes in time.
func (f *feed) readInterval() time.Duration {
	if !f.timely || !f.unreportedSince.IsZero() || time.Now().Before(f.lateUntil) {
		return f.feeds.quiet / lateReads
	}
	return f.feeds.quiet
}

// checkWatch reads the record because the watch has reported nothing for readInterval. If an earlier read has shown a
// write that the watch has still not reported, the watch is late.
func (f *feed) checkWatch() error {
	now := time.Now()
	if !f.unreportedSince.IsZero() {
		f.lateUntil = now.Add(lateTimes * f.feeds.quiet)
	}
	changed, err := f.readRecord()
	switch {
	case err != nil:
		return fmt.Errorf("read after the quiet time: %w", err)
	case !changed:
	case f.unreportedSince.IsZero():
		f.unreportedSince = now
	case now.Sub(f.unreportedSince) >= f.silentLimit:
		return errSilent
	}
	return nil
}

// handleReport handles a report of the watch. first is true for the first report of each watch.
func (f *feed) handleReport(e changefeed.Event, first bool) error {
	if first && e == (changefeed.Event{}) {
		_, err := f.readRecord()
		return err
	}
	alreadyRead := !f.unreportedSince.IsZero() // whether a read has already shown this write or a later one
	f.unreportedSince = time.Time{}
	changed := false
	switch {
	case e != (changefeed.Event{}) && (e.Hint && f.isNextHeartbeat(e.Record) || !e.Hint && (f.isLater(e) || f.isRepeated(e))):
		f.lastIsRead = false
		changed = f.deliver(e)
	case e != (changefeed.Event{}) && !e.Hint && f.lastIsRead && f.inEpoch(e) && e.Record.Seq <= f.last.Record.Seq:
		// A read has already delivered this write, so nothing is to be done.
	default:
		var err error
		if changed, err = f.readRecord(); err != nil {
			return err
		}
	}
	f.timely = f.timely || changed || alreadyRead
	return nil
}

// readRecord reads the record and delivers it. changed reports whether the read shows a write that the watch has not
// reported.
func (f *feed) readRecord() (changed bool, err error) {
	ctx := f.ctx
	if limit := f.feeds.readLimit; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	r, err := f.feeds.read(ctx)
	if err != nil && !errors.Is(err, changefeed.ErrNoRecord) {
		return false, err
	}
	e := changefeed.Event{Record: r, Missing: err != nil}
	confirmsHint := f.last.Hint && f.inEpoch(e) && r.Seq == f.last.Record.Seq && r.Version == f.last.Record.Version
	changed = f.deliver(e) && !confirmsHint // A read that confirms a hint shows nothing that the watch has not reported.
	f.lastIsRead = f.lastIsRead || changed
	return changed, nil
}

// deliver sends e to the reader, unless e repeats the last event, and reports whether it has sent it.
func (f *feed) deliver(e changefeed.Event) bool {
	if f.isRepeated(e) {
		return false
	}
	f.started, f.last = true, e
	limit.SendNewest(f.events, e)
	return true
}

// isNextHeartbeat reports whether r differs from the last record only as the next heartbeat of its
// leader does.
func (f *feed) isNextHeartbeat(r changefeed.Record) bool {
	next := f.last.Record
	next.Seq, next.Version, next.Time = next.Seq+1, r.Version, r.Time
	return f.started && !f.last.Missing && next.Leader != "" && r == next
}

// isLater reports whether e is certainly a later state than the last event.
func (f *feed) isLater(e changefeed.Event) bool {
	return !f.started || f.inEpoch(e) && e.Record.Seq > f.last.Record.Seq
}

// isRepeated reports whether e adds nothing to the last event. A record that was read after a hint with
// the same content is not a repetition, because it confirms the hint. Neither is a record with the same
// Seq and another version: if a write was lost in a failover, its Seq is used again.
func (f *feed) isRepeated(e changefeed.Event) bool {
	r, last := e.Record, f.last.Record
	switch {
	case !f.started || f.last.Hint:
		return false
	case e.Missing:
		return f.last.Missing
	}
	return f.inEpoch(e) && r.Seq == last.Seq && r.Version == last.Version
}

// inEpoch reports whether e and the last event contain records of the same epoch.
func (f *feed) inEpoch(e changefeed.Event) bool {
	return !e.Missing && !f.last.Missing && e.Record.Epoch == f.last.Record.Epoch
}
