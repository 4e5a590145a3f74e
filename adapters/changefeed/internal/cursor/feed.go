// Package cursor makes feeds of drivers' cursors: those wait without a limit, may not let
// themselves be interrupted, and do not notice that a server is silent.
package cursor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/notice"
)

// errSilent ends a cursor that has not told of a write for too long. The feed opens another.
var errSilent = errors.New("the cursor did not deliver a change of the record")

// retry is how long a feed waits for the table that it is to follow.
const retry = 100 * time.Millisecond

// Told is what a cursor tells of the record.
type Told struct {
	changefeed.Event
	// Doubtful says that it may be older than what was read. It is told if it is the
	// next of what was told, and else the record is read.
	Doubtful bool
}

// Source is where feeds come from.
type Source struct {
	// Life is that of the store.
	Life *Life
	// Open opens a cursor. The error is changefeed.ErrNoRecord where there is nothing to
	// follow yet.
	Open Open[Told]
	// Read reads the record, as changefeed.Store's does.
	Read func(ctx context.Context) (changefeed.Record, error)
	// ReadsFirst says that a cursor does not begin with what there is.
	ReadsFirst bool
	// Quiet is after how much silence the record is read, and how long that, and
	// opening a cursor, may take. While the cursor is late the record is read four times
	// as often. A read that shows a write counts as if the cursor had told of it.
	Quiet time.Duration
}

// A cursor can be late for good: that of a MongoDB sharded cluster tells of a write when
// every shard has passed its time, which takes ten seconds by default where one is idle.
// Such a feed must neither end nor let its readers wait for the cursor.
const (
	// lateReads is how many times in each quiet time the record is read while the cursor is
	// late.
	lateReads = 4
	// lateFor is for how many quiet times a cursor counts as late after it was.
	lateFor = 16
	// patience is for how many quiet times a cursor may be silent about a write before it is
	// replaced. That doubles with each replacement, up to maxPatience.
	patience, maxPatience = 2, 32
)

// Subscribe returns a feed, which tells of errors of opening it as well.
func (s *Source) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	_, end, err := s.Life.Begin(ctx)
	if err != nil {
		return nil, err
	}
	end()
	f := &feed{source: s, life: NewLife(s.Life.ctx), box: notice.Newest[changefeed.Event](), patience: patience * s.Quiet}
	run := func() {
		err := f.run()
		if f.life.ctx.Err() != nil {
			err = changefeed.ErrClosed
		}
		f.box.End(err)
	}
	if err := f.life.Go(run); err != nil {
		return nil, err
	}
	return f, nil
}

// feed tells of the newest state. Its fields belong to its goroutine, but for the box.
type feed struct {
	source *Source
	life   *Life
	box    *notice.Box[changefeed.Event]
	told   bool
	last   changefeed.Event

	timely   bool          // a cursor has told of a write soon
	unheard  time.Time     // when a read showed a write that the cursor has not told of, or zero
	late     time.Time     // until then the cursor counts as late
	patience time.Duration // with a silent cursor
}

// Next implements [changefeed.Feed].
func (f *feed) Next(ctx context.Context) (changefeed.Event, error) { return f.box.Next(ctx) }

// Close implements [changefeed.Feed].
func (f *feed) Close() error {
	f.box.End(changefeed.ErrClosed)
	f.life.Close()
	return nil
}

func (f *feed) run() error {
	defer context.AfterFunc(f.life.ctx, func() { f.box.End(changefeed.ErrClosed) })()
	for {
		t := follow(f.life, f.source.Open)
		err := f.follow(t)
		if errors.Is(err, errSilent) {
			f.patience = min(2*f.patience, maxPatience*f.source.Quiet)
			t.life.end() // the feed's end waits for it
			continue
		}
		if !errors.Is(err, changefeed.ErrNoRecord) {
			f.box.End(err) // before waiting for the driver
			t.life.Close()
			return err
		}
		t.life.Close()
		f.tell(changefeed.Event{Missing: true})
		select {
		case <-f.life.ctx.Done():
			return changefeed.ErrClosed
		case <-time.After(min(retry, f.source.Quiet)):
		}
	}
}

// pace is how long the feed waits for the cursor before it reads the record.
func (f *feed) pace() time.Duration {
	if !f.timely || !f.unheard.IsZero() || time.Now().Before(f.late) {
		return f.source.Quiet / lateReads
	}
	return f.source.Quiet
}

// follow tells what a tail tells, and what is read where it may have told less.
func (f *feed) follow(t *tail[Told]) error {
	limit := time.NewTimer(f.source.Quiet)
	defer limit.Stop()
	f.unheard = time.Time{}
	quiet := time.NewTimer(f.pace())
	defer quiet.Stop()
	opened := t.opened
	for {
		var err error
		select {
		case <-f.life.ctx.Done():
			return changefeed.ErrClosed
		case <-t.ended:
			return t.err
		case <-limit.C:
			if opened == nil {
				continue
			}
			err = fmt.Errorf("the feed was not opened within %v", f.source.Quiet)
		case <-opened:
			opened = nil
			if f.source.ReadsFirst {
				_, err = f.look()
			}
		case told := <-t.items:
			err = f.take(told)
		case <-quiet.C:
			if opened == nil {
				err = f.check()
			}
		}
		if err != nil {
			return err
		}
		quiet.Reset(f.pace())
	}
}

// check reads the record while the cursor is silent. A write that this shows, and that the
// cursor has still not told of at the next check, makes the cursor late.
func (f *feed) check() error {
	now := time.Now()
	if !f.unheard.IsZero() {
		f.late = now.Add(lateFor * f.source.Quiet)
	}
	news, err := f.look()
	switch {
	case err != nil || !news:
		return err
	case f.unheard.IsZero():
		f.unheard = now
	case now.Sub(f.unheard) >= f.patience:
		return errSilent
	}
	return nil
}

// take tells what the cursor has told.
func (f *feed) take(t Told) error {
	read := !f.unheard.IsZero() // it, or something after it
	f.unheard = time.Time{}
	if t.Doubtful && !f.next(t.Event) && !f.old(t.Event) {
		_, err := f.look()
		return err
	}
	if f.tell(t.Event) || read {
		f.timely = true
	}
	return nil
}

// look reads the record, and reports whether that was news.
func (f *feed) look() (news bool, err error) {
	ctx, cancel := context.WithTimeout(f.life.ctx, f.source.Quiet)
	defer cancel()
	r, err := f.source.Read(ctx)
	if err != nil && !errors.Is(err, changefeed.ErrNoRecord) {
		return false, err
	}
	return f.tell(changefeed.Event{Record: r, Missing: err != nil}), nil
}

// tell tells e, unless it was told or is older than what was.
func (f *feed) tell(e changefeed.Event) bool {
	if f.old(e) || f.told && e.Missing && f.last.Missing {
		return false
	}
	f.told, f.last = true, e
	f.box.Put(e)
	return true
}

func (f *feed) sameRecord(e changefeed.Event) bool {
	return f.told && !e.Missing && !f.last.Missing && e.Record.Epoch == f.last.Record.Epoch
}

// old is what was told, or came before it. A write that was lost in a failover has a Seq
// that is given again, with another version.
func (f *feed) old(e changefeed.Event) bool {
	r, last := e.Record, f.last.Record
	return f.sameRecord(e) && (r.Seq < last.Seq || r.Seq == last.Seq && r.Version == last.Version)
}

func (f *feed) next(e changefeed.Event) bool {
	return f.sameRecord(e) && e.Record.Seq > f.last.Record.Seq
}
