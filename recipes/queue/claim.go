package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/grant"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
	"github.com/go-leaderelection/leaderelection/internal/zk/txn"
	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
)

// attemptNode is the child of an item that is created and deleted with each claim.
// How many children an item has had is in its Stat: so many attempts.
const attemptNode = "attempt"

// claimAll claims items, and returns those that it could claim. The error is that
// the queue forbids it.
func (f *feed) claimAll(chosen []entry) ([]*delivery, error) {
	ids := make([]string, len(chosen)) // each claim has one of its own
	claims := make([]txn.Transaction, len(chosen))
	early := make([]*earlyRead, len(chosen))
	for i, e := range chosen {
		ids[i] = rand.Text()
		attempt := path.Join(f.item(e.name), attemptNode)
		claims[i].Ops = []any{
			&zk.CreateRequest{Path: f.claim(e.name), Data: []byte(ids[i]), Acl: f.acl, Flags: zk.FlagEphemeral},
			&zk.CreateRequest{Path: attempt, Acl: f.acl},
			&zk.DeleteRequest{Path: attempt, Version: -1},
		}
		if f.spread == 0 { // nobody was quicker lately: it will be needed
			early[i] = f.readEarly(e.name)
			claims[i].Sending = early[i].send
		}
	}
	calls := f.writer.StartAll(claims)
	var claimed []*delivery
	var failed error
	missed := 0
	gone := map[string]bool{}
	for i, e := range chosen {
		o := calls[i].Outcome()
		switch {
		case o.Err == nil:
			gone[e.name] = true
			f.taken++
			claimed = append(claimed, f.hold(e, o, early[i]))
		case o.Failed == 0 && errors.Is(o.Err, zk.ErrNodeExists):
			f.claimed[e.name] = true
			missed++
		case o.Failed == 1 && errors.Is(o.Err, zk.ErrNoNode):
			gone[e.name] = true
			missed++
		case o.Failed == 1 && errors.Is(o.Err, zk.ErrNodeExists):
			f.log.Warn("item has an unrecognized child and cannot be claimed", "item", e.name)
			f.unfit[e.name] = true
		case errors.Is(o.Err, txn.ErrUnknown):
			f.doubtful[e.name], f.claims.stale = ids[i], true
			failed = onlyClosed(o.Err)
		default:
			failed = o.Err
		}
	}
	f.timed, f.ranked = without(f.timed, gone), without(f.ranked, gone)
	if f.missed += missed; missed > 0 {
		f.collided(len(claimed))
	} else {
		f.uncontended()
	}
	return claimed, failed
}

// onlyClosed is ErrClosed where that is the reason of err.
func onlyClosed(err error) error {
	if errors.Is(err, zkerror.ErrConnClosed) {
		return zkerror.ErrConnClosed
	}
	return nil
}

// hold takes in that an item was claimed. It is the feed's turn to write for it,
// until it has been read.
func (f *feed) hold(e entry, o txn.Outcome, early *earlyRead) *delivery {
	d := &delivery{
		entry: e, q: f.Queue, session: o.Session, token: o.Zxid, turn: make(chan struct{}, 1), early: early,
	}
	d.turn <- struct{}{}
	d.grant, d.end = grant.New(o.Zxid, d.deadline)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.held) == 0 {
		f.Queue.sub.Prove(o.Record, o.Sent)
	}
	f.held[d] = struct{}{}
	return d
}

// content is what was read of an item.
type content struct {
	raw  []byte
	stat *zk.Stat
}

// earlyRead reads an item right behind its claim, in the same round trip: a server
// carries out what a session sends in the order in which it comes.
type earlyRead struct {
	send   func() // begins it
	answer chan content
}

func (f *feed) readEarly(name string) *earlyRead {
	r := &earlyRead{answer: make(chan content, 1)}
	r.send = sync.OnceFunc(func() {
		go func() {
			raw, stat, err := request.Get(f.conn, f.item(name))
			if err != nil {
				stat = nil
			}
			r.answer <- content{raw, stat}
		}()
	})
	return r
}

// of returns what was read, if that has the attempt in it that was counted with the
// claim, in the transaction zxid. If the read was quicker it is of no use.
func (r *earlyRead) of(zxid int64) (content, bool) {
	if r == nil {
		return content{}, false
	}
	r.send() // it was, unless the claim's answer was lost and sought
	c := <-r.answer
	return c, c.stat != nil && c.stat.Pzxid >= zxid
}

// open reads the items that were claimed, all at once, and returns those that can
// be handed out. The error is that of an item that the connection cannot receive. The
// item is left to consumers whose connection can.
func (f *feed) open(claimed []*delivery) (ready []*delivery, tooLarge error) {
	answers := make([]<-chan request.Answer[content], len(claimed))
	for i, d := range claimed {
		early := d.early
		d.early = nil
		answers[i] = request.Start(func() (content, error) {
			if c, ok := early.of(d.token); ok {
				return c, nil
			}
			return request.Read(context.Background(), f.conn, func() (content, error) {
				raw, stat, err := request.Get(f.conn, f.item(d.name))
				return content{raw, stat}, err
			})
		})
	}
	for i, d := range claimed {
		a := <-answers[i]
		err := a.Err
		if err == nil {
			stat := a.Value.stat
			d.raw, d.version, d.czxid = a.Value.raw, stat.Version, stat.Czxid
			// What was claimed and not read has been written once more.
			d.attempt = max(int((stat.Cversion+stat.NumChildren)/2-stat.Version), 1)
			d.parts, err = f.payloads(d.raw)
		}
		<-d.turn
		switch {
		case errors.Is(a.Err, zkerror.ErrTooLarge):
			f.unfit[d.name], tooLarge = true, a.Err
			f.drop(d, a.Err)
		case a.Err != nil:
			// It was deleted by a hand that does not care for claims, or the
			// connection was closed.
			f.drop(d, a.Err)
		case err != nil:
			f.discard(d, err.Error())
		case f.cfg.MaxAttempts > 0 && d.attempt > f.cfg.MaxAttempts:
			d.attempt--
			f.discard(d, fmt.Sprintf("%d attempts, and the last was neither acknowledged nor returned", d.attempt))
		default:
			ready = append(ready, d)
		}
	}
	return ready, tooLarge
}

// discard makes a dead letter of an item that cannot be handed out.
func (f *feed) discard(d *delivery, reason string) {
	s := &settlement{q: f.Queue, as: errAcknowledged, items: []*delivery{d}}
	s.build = func(d *delivery) ([]step, error) { return d.bury(reason), nil }
	if err := s.run(f.ctx); err != nil && d.grant.Err() == nil {
		f.log.Error("could not create dead letter", "item", d.name, "reason", reason, "err", err)
		f.unfit[d.name] = true
		f.drop(d, err)
		return
	}
	f.log.Warn("item moved to the dead letters", "item", d.name, "reason", reason)
}

// drop gives an item back that was claimed and cannot be used.
func (f *feed) drop(d *delivery, reason error) {
	d.end(reason)
	f.release(d)
	f.busy.Go(func() { f.giveBack(d) })
}

// proven waits until the lease covers the items, and returns those that are not
// lost meanwhile.
func (f *feed) proven(ready []*delivery) (handed []*delivery) {
	for len(ready) > 0 {
		f.mu.Lock()
		state := f.sub.State() // not before, and not after: the guard may have lost it
		kept := ready[:0]
		for _, d := range ready {
			if d.grant.Context().Err() != nil || d.session != state.Session || state.Closed {
				continue // the guard ends it
			}
			if state.Proven {
				d.handedOut, d.lapses = true, state.Lapses
				d.grant.Deadline() // from now on it has one
				handed = append(handed, d)
				continue
			}
			kept = append(kept, d)
		}
		ready = kept
		f.mu.Unlock()
		if len(ready) == 0 {
			break
		}
		select {
		case <-f.lease: // the guard is told
		case <-f.sub.Changed():
		case <-f.ctx.Done():
			return handed // shut gives them back
		}
	}
	return handed
}
