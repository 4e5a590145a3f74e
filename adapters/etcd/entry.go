package etcd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// most is how many keepalives, and how many looks, may be under way: the next is not held up
// by one that a dead server has got.
const most = 4

// stay is one stay in line, with one lease. It belongs to the goroutine of ElectLeader. Whatever
// takes time is done by others, which hand over one answer each: the leader's own clock has to
// be heeded meanwhile.
type stay struct {
	*Election
	place
	lease lease
	until atomic.Pointer[time.Time] // the lease's deadline, for everybody

	ctx              context.Context // of requests and watches
	children         sync.WaitGroup
	kept             chan kept
	looked           chan looked
	keeping, looking int
	keepAt, lookAt   time.Time // when the next is due

	own, before *watch // for the deletion of the own key, and the predecessor's
	requests    *watch // for requests to resign, in the value of the election node
	revision    int64  // the newest that was heard of: views before are old
	told        bool   // a first status was published
	first       bool
	ahead       string // the predecessor
	gone        bool   // a server has said that it knows no such lease
}

// kept is the answer to a keepalive.
type kept struct {
	keep
	ttl  time.Duration
	took time.Duration // from the request to the answer
	err  error
}

// looked is the answer to a look, which was sent after keep was acknowledged.
type looked struct {
	keep keep
	view *view
	err  error
}

// stay enters the line and stays until the place is lost, or is to be given up. It returns why.
func (e *Election) stay(standing context.Context) error {
	s, err := e.enter(standing)
	if err != nil {
		e.confirmed(err)
		return err
	}
	ctx, cancel := context.WithCancel(standing)
	s.ctx = ctx
	s.kept, s.looked = make(chan kept, most), make(chan looked, most)
	s.revision = s.rev
	err = s.run()
	e.candidacy.Revoke(err) // before anything is given back
	cancel()
	s.own.end()
	s.before.end()
	s.requests.end()
	s.children.Wait()
	e.withdraw(s.id)
	e.confirmed(err)
	return err
}

func (s *stay) run() error {
	s.own = deletion(s.ctx, s.client, s.key, s.rev+1)
	now := time.Now()
	s.lookAt, s.keepAt = now, now.Add(s.lease.ttl/8)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		s.suspend(now)
		s.ask(now)
		timer.Reset(s.next().Sub(now))
		select {
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-s.client.Ctx().Done():
			return errClosed
		case a := <-s.kept:
			s.keeping--
			s.renewed(a)
		case a := <-s.looked:
			s.looking--
			if err := s.saw(a); err != nil {
				return err
			}
		case revision := <-s.own.events():
			s.own.end()
			s.own = nil
			if revision != 0 && s.candidacy.Revoke(errDeleted) {
				s.candidacy.Publish(leaderelection.Status{Role: leaderelection.Suspended})
			}
			s.heard(revision)
		case revision := <-s.before.events():
			if revision != 0 {
				s.candidacy.Vacated()
			}
			s.before.end()
			s.before = nil
			s.heard(revision)
		case revision := <-s.requests.events():
			s.requests.end()
			s.requests = nil
			s.heard(revision)
		case <-s.listens:
			s.lookAt = time.Now()
		case <-timer.C:
		}
	}
}

// interval is the time between two keepalives.
func (s *stay) interval() time.Duration {
	if s.first {
		return s.lease.ttl / 8
	}
	return s.lease.ttl / 3
}

// soon is when to try again what has failed.
func (s *stay) soon() time.Time { return time.Now().Add(min(s.lease.ttl/16, 500*time.Millisecond)) }

// ask sends what is due. Each request has a limit, so that another one is made where its answer
// is lost. Those who send them do not look at the lease, which is the owner's.
func (s *stay) ask(now time.Time) {
	limit := min(s.lease.ttl/2, requestLimit)
	if s.keeping < most && !s.keepAt.After(now) {
		s.keeping++
		s.keepAt = now.Add(s.interval())
		s.children.Go(func() {
			ctx, cancel := context.WithTimeout(s.ctx, limit)
			defer cancel()
			sent := time.Now()
			ttl, term, err := keepAlive(ctx, s.client, s.id)
			s.kept <- kept{keep{sent, term}, ttl, time.Since(sent), err}
		})
	}
	if s.looking < most && !s.lookAt.After(now) {
		s.looking++
		s.lookAt = now.Add(min(s.lease.ttl/4, requestLimit/2))
		k := s.lease.kept
		s.children.Go(func() {
			ctx, cancel := context.WithTimeout(s.ctx, limit)
			defer cancel()
			v, err := look(ctx, s.client, s.node, s.place)
			s.looked <- looked{k, v, err}
		})
	}
}

// next is when something is to be done without being told.
func (s *stay) next() time.Time {
	next := time.Now().Add(time.Minute)
	for _, t := range []struct {
		at     time.Time
		counts bool
	}{
		{s.keepAt, s.keeping < most},
		{s.lookAt, s.looking < most},
		{s.lease.deadline(), s.leads()},
	} {
		if t.counts && t.at.Before(next) {
			next = t.at
		}
	}
	return next
}

// heard has the candidate look because of what a watch has told.
func (s *stay) heard(revision int64) {
	if revision == 0 {
		s.lookAt = s.soon()
		return
	}
	s.revision = max(s.revision, revision)
	s.lookAt = time.Now()
}

// renewed takes the answer to a keepalive.
func (s *stay) renewed(a kept) {
	switch {
	case a.err != nil:
		s.candidacy.Report(leaderelection.Event{Kind: leaderelection.EventChecked, Err: a.err})
		s.log.Debug("keepalive failed", "id", s.key, "err", a.err)
		s.keepAt = earlier(s.keepAt, s.soon())
	case a.ttl <= 0:
		// This has to be confirmed by a read: a server that is behind does not know the lease yet.
		s.candidacy.Report(leaderelection.Event{Kind: leaderelection.EventChecked, Err: errExpired})
		s.gone = true
		s.lookAt = time.Now()
	default:
		s.candidacy.Report(leaderelection.Event{Kind: leaderelection.EventChecked, Duration: a.took})
		s.lease.renewed(a.keep, a.ttl)
		if s.first {
			s.lookAt = time.Now()
		}
	}
}

// saw takes a view, and returns an error if the place is lost.
func (s *stay) saw(a looked) error {
	if a.err != nil {
		s.log.Debug("reading the queue failed", "id", s.key, "err", a.err)
		s.lookAt = earlier(s.lookAt, s.soon())
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		return final(a.err)
	}
	v := a.view
	if v.revision < s.revision {
		s.lookAt = earlier(s.lookAt, s.soon())
		return nil // there is something newer to come
	}
	s.revision = v.revision
	if v.node != s.nodeRev {
		return leaderelection.ErrElectionOver
	}
	if v.own != s.rev {
		return s.lost()
	}
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	s.gone = false
	s.lease.confirmed(a.keep, v.term)
	s.tell()
	if s.own == nil {
		s.own = deletion(s.ctx, s.client, s.key, v.revision+1)
	}
	s.checkRequests(v)
	if v.ahead == "" {
		s.lookAt = time.Now().Add(s.lease.ttl / 4) // besides those after each keepalive
		s.isFirst(v)
		return nil
	}
	// A watch may have gone dumb: a look now and then.
	s.lookAt = time.Now().Add(s.lease.ttl)
	if s.before == nil || s.before.key != v.ahead {
		s.before.end()
		s.before = deletion(s.ctx, s.client, v.ahead, v.revision+1)
	}
	if !s.told || s.ahead != v.ahead {
		s.told, s.ahead = true, v.ahead
		s.candidacy.Publish(leaderelection.Status{NowFollowing: v.ahead})
	}
	return nil
}

// isFirst begins or goes on with leadership, if that is proven.
func (s *stay) isFirst(v *view) {
	if !s.first {
		s.first = true
		s.before.end()
		s.before = nil
		s.keepAt = time.Now()
	}
	if v.term != s.lease.kept.term {
		// The cluster has elected another leader since the last keepalive.
		s.keepAt = earlier(s.keepAt, s.soon())
	}
	if !s.leads() && s.lease.good(time.Now()) {
		s.told = true
		s.candidacy.Lead(s.rev, s.deadline)
	}
}

// lost says why the own key is gone.
func (s *stay) lost() error {
	if s.candidacy.Revoke(errDeleted) {
		s.candidacy.Publish(leaderelection.Status{Role: leaderelection.Suspended})
	}
	if s.gone {
		return errExpired
	}
	err := again(s.ctx, s.client, s.lease.ttl/2, func(ctx context.Context) error {
		ttl, _, err := keepAlive(ctx, s.client, s.id)
		if err == nil && ttl <= 0 {
			return &endError{errExpired}
		}
		return err
	})
	if err == nil {
		return errDeleted
	}
	return err
}

// leads reports whether there is a leadership.
func (s *stay) leads() bool { return s.candidacy.Leadership() != nil }

// suspend ends the leadership when the lease has run out.
func (s *stay) suspend(now time.Time) {
	if s.lease.over(now) {
		s.candidacy.Suspend(leaderelection.ErrLeaseExpired)
	}
}

// tell makes the lease's deadline known.
func (s *stay) tell() {
	d := s.lease.deadline()
	s.until.Store(&d)
}

// deadline is what the leadership asks, from any goroutine.
func (s *stay) deadline() time.Time { return *s.until.Load() }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
