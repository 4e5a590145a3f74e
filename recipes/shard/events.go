package shard

import (
	"context"
	"errors"
	"time"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/recipes"
)

func (g *Group) report(e event.Event) { g.setup.Report("shard", e) }

// reportMember emits an event of the znode of a member that this process maintains.
func (g *Group) reportMember(e event.Event) {
	e.Path = g.setup.Path + "/members"
	g.setup.Report("group", e)
}

// observe emits an event for a shard that the member has just acquired, after it has contended for the shard since
// began. When the shard is released or lost, observe emits another event, and then closes the channel reported.
func (g *Group) observe(s *Shard, began time.Time) (reported <-chan struct{}) {
	done := make(chan struct{})
	if g.setup.Events == nil {
		close(done)
		return done
	}
	granted := time.Now()
	g.report(event.Event{Kind: event.Acquired, Subject: s.name, Token: s.Token(), Duration: granted.Sub(began), Reason: string(s.reason)})
	context.AfterFunc(s.Context(), func() {
		defer close(done)
		e := event.Event{Kind: event.Released, Subject: s.name, Token: s.Token(), Duration: time.Since(granted)}
		if moved := s.Moved(); moved != nil {
			e.Reason = string(moved.Reason)
		}
		if err := s.Err(); errors.Is(err, ErrRevoked) || !errors.Is(err, recipes.ErrReleased) {
			e.Kind, e.Err = event.Lost, err
		}
		g.report(e)
	})
	return done
}

// errNoLeader is the Err of the event of a plan that a member has computed itself.
var errNoLeader = errors.New("shard: no leader has planned for the present members")

// reportPlan emits an event for the plan that the member follows.
func (f *follower) reportPlan() {
	e := event.Event{Kind: event.Planned, Token: f.plan.Version, Count: len(f.plan.Owners)}
	if f.computed {
		e.Err = errNoLeader
	}
	f.member.group.report(e)
}
