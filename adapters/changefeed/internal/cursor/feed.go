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

// ErrSilent: a cursor that is open has not told of what was written.
var ErrSilent = errors.New("the feed is silent, and the record was changed")

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
	// opening a cursor, may take.
	Quiet time.Duration
}

// Subscribe returns a feed, which tells of errors of opening it as well.
func (s *Source) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	_, end, err := s.Life.Begin(ctx)
	if err != nil {
		return nil, err
	}
	end()
	f := &feed{source: s, life: NewLife(s.Life.ctx), box: notice.Newest[changefeed.Event]()}
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

// follow tells what a tail tells, and what is read where it may have told less.
func (f *feed) follow(t *tail[Told]) error {
	quiet := time.NewTimer(f.source.Quiet)
	defer quiet.Stop()
	opened, unheard := t.opened, false
	for {
		var err error
		select {
		case <-f.life.ctx.Done():
			return changefeed.ErrClosed
		case <-t.ended:
			return t.err
		case <-opened:
			opened = nil
			if f.source.ReadsFirst {
				_, err = f.look()
			}
		case told := <-t.items:
			unheard = false
			err = f.take(told)
		case <-quiet.C:
			if opened != nil {
				return fmt.Errorf("the feed was not opened in %v", f.source.Quiet)
			}
			var news bool
			if news, err = f.look(); news && unheard {
				err = ErrSilent
			}
			unheard = unheard || news
		}
		if err != nil {
			return err
		}
		quiet.Reset(f.source.Quiet)
	}
}

func (f *feed) take(t Told) error {
	if t.Doubtful && !f.next(t.Event) && !f.old(t.Event) {
		_, err := f.look()
		return err
	}
	f.tell(t.Event)
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
