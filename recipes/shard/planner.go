package shard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/group"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/value"
)

const (
	// batchTime is how long the leader waits after a change, before it plans, for further changes.
	batchTime = 50 * time.Millisecond
	// At the beginning of its term, the leader plans when no member has joined or left for quietTime, or when
	// maxQuietTime has passed.
	quietTime    = 250 * time.Millisecond
	maxQuietTime = 2 * time.Second
)

// lead makes plans whenever this member is the leader, until ctx is done or the connection is closed.
func (m *Member) lead(ctx context.Context) {
	g := m.group
	mutex, err := lock.NewMutex(g.setup.Conn, g.setup.Path+"/leader", lock.WithName(m.id), g.setup.Settings())
	for pause := relockPause; !errors.Is(err, recipes.ErrConnClosed); {
		err = mutex.Do(ctx, func(ctx context.Context, hold *lock.Hold) error {
			return newPlanner(g, hold).run(ctx)
		})
		if ctx.Err() != nil {
			return
		}
		if pause = min(2*pause, maxRelockPause); !errors.Is(err, recipes.ErrPermission) {
			pause = relockPause
		}
		g.setup.Log.Warn("no longer the leader of the shards", "member", m.id, "err", err, "pause", pause)
		if limit.Pause(ctx, pause) != nil {
			return
		}
	}
}

// planner is the state of a leader during one term. Only one goroutine uses it.
type planner struct {
	group *Group
	hold  *lock.Hold

	members map[string]record // nil until the members are known
	spec    *value.Change[Spec]
	plan    Plan
	stored  int64    // the version of the plan in the znode; -1 if it cannot be read
	stat    *zk.Stat // the Stat of the znode of the plan; nil if the plan must be read
	// begun contains, for each version of a plan whose moves are in progress, the time at which this leader has
	// first seen the plan.
	begun map[int64]time.Time
	quiet time.Time // the leader does not plan before this time, because other members may join
}

func newPlanner(g *Group, hold *lock.Hold) *planner {
	return &planner{group: g, hold: hold, begun: map[int64]time.Time{}}
}

// run makes plans until ctx is done or the leader cannot continue. It returns the reason.
func (p *planner) run(ctx context.Context) error {
	watched, cancel := context.WithCancel(ctx)
	views, specs, plans := p.group.members.Watch(watched), p.group.spec.Watch(watched), p.group.plan.Watch(watched)
	defer func() {
		cancel()
		for range views {
		}
		for range specs {
		}
		for range plans {
		}
	}()
	begin := time.Now()
	p.quiet = begin.Add(quietTime)
	timer := time.NewTimer(quietTime)
	defer timer.Stop()
	due := p.quiet
	wake := func(at time.Time) {
		if due = at; p.quiet.After(due) {
			due = p.quiet
		}
		timer.Reset(time.Until(due))
	}
	wakeSoon := func() { wake(earlierTime(due, time.Now().Add(batchTime))) }
	for {
		select {
		case v, ok := <-views:
			if !ok || v.Err != nil {
				return cmp.Or(v.Err, context.Cause(ctx))
			}
			is := recordsOf(v.Members)
			if now := time.Now(); len(is) != len(p.members) && now.Before(p.quiet) {
				p.quiet = earlierTime(now.Add(quietTime), begin.Add(maxQuietTime))
			}
			p.members = is
			wakeSoon()
		case c, ok := <-specs:
			switch {
			case !ok || c.Err != nil:
				return cmp.Or(c.Err, context.Cause(ctx))
			case c.Cause != nil:
				p.group.setup.Log.Warn("cannot read the spec of the shards: keeping the previous one", "err", c.Cause)
				continue
			}
			if err := c.Value.normalize(); err != nil {
				p.group.setup.Log.Warn("the spec of the shards is not valid: keeping the previous one", "err", err)
				continue
			}
			p.spec = &c
			wakeSoon()
		case c, ok := <-plans:
			if !ok || c.Err != nil {
				return cmp.Or(c.Err, context.Cause(ctx))
			}
			if z := c.Version.Zxid(); p.stat != nil && (z == 0 || z > p.stat.Mzxid) {
				p.stat = nil // another program has changed or deleted the plan
				wakeSoon()
			}
		case <-timer.C:
			at, err := p.update(ctx)
			if err != nil {
				return err
			}
			wake(at)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func earlierTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// recordsOf returns the records of the members. It omits znodes of other programs: they must not become owners,
// and a number in their data could exceed all later versions of the plan.
func recordsOf(members []group.Member) map[string]record {
	all := make(map[string]record, len(members))
	for _, m := range members {
		var r record
		switch {
		case m.Err != nil, m.Session == 0, json.Unmarshal(m.Data, &r) != nil:
		case r.Weight < 1, len(r.Zone) > maxZone, !isVersion(r.Confirmed):
		default:
			all[m.ID] = r
		}
	}
	return all
}

// maxIdle is the longest time that a leader waits between two calls of update.
const maxIdle = time.Hour

// update writes the next plan if it differs from the present one. It returns the time at which it must be
// called again even if nothing changes.
func (p *planner) update(ctx context.Context) (time.Time, error) {
	now := time.Now()
	switch {
	case ctx.Err() != nil:
		return now, context.Cause(ctx)
	case p.members == nil || p.spec == nil:
		return now.Add(maxIdle), nil
	}
	if p.stat == nil {
		if err := p.read(ctx); err != nil {
			return now, err
		}
	}
	plan := nextPlan(p.plan, p.confirmedRecords(now), p.spec.Value, p.spec.Version.Zxid(), now)
	if plan.Version == p.plan.Version && plan.Version == p.stored {
		return p.wakeup(now), nil
	}
	plan, data, err := plan.fitPlan()
	if err != nil {
		return now, err
	}
	responses, err := p.hold.Multi(&zk.SetDataRequest{Path: p.group.planPath(), Data: data, Version: p.stat.Version})
	switch {
	case err == nil:
		p.plan, p.stored, p.stat = plan, plan.Version, responses[0].Stat
		return p.wakeup(now), nil
	case errors.Is(err, recipes.ErrNotHeld), errors.Is(err, recipes.ErrConnClosed), errors.Is(err, recipes.ErrPermission):
		return now, err // give up the leadership, because another member may have the permission
	case errors.Is(err, recipes.ErrInvalid): // the plan is too large, because there are too many members
		p.group.setup.Log.Error("the plan of the shards is too large: keeping the previous one", "bytes", len(data), "err", err)
		return now.Add(maxIdle), nil
	}
	// The reply was lost, or another program has changed the plan. Read it again.
	p.group.setup.Log.Warn("cannot write the plan of the shards: reading it again", "err", err)
	p.stat = nil
	return now.Add(relockPause), nil
}

// read reads the plan, and creates its znode if it does not exist.
func (p *planner) read(ctx context.Context) error {
	s, node := p.group.setup, p.group.planPath()
	for {
		var data []byte
		stat, err := connection.Read(ctx, s.Conn, func() (stat *zk.Stat, err error) {
			if _, err := s.Conn.Sync(node); err != nil {
				return nil, err
			}
			data, stat, err = connection.Get(s.Conn, node)
			return stat, err
		})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			if err := connection.MakeZnode(ctx, s.Conn, node, s.ACL, false); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		plan, err := decodePlan(data)
		switch {
		case err != nil:
			s.Log.Warn("the plan of the shards is not readable: writing it again", "err", err)
			plan.Version = -1
		case plan.Version >= p.plan.Version:
			p.plan = plan
		}
		p.stored, p.stat = plan.Version, stat
		return s.CheckAccess(ctx, node)
	}
}

// roundLimit returns how long the leader waits for the confirmation of a move.
func (p *planner) roundLimit() time.Duration {
	return 2 * (p.group.settings.grace + p.group.setup.SessionTimeout())
}

// confirmedRecords returns the records of the members. It treats a move that began longer ago than roundLimit as
// confirmed, because otherwise a member that cannot lock a shard would stop the moves of all other members.
func (p *planner) confirmedRecords(now time.Time) map[string]record {
	late := int64(0)
	versions := map[int64]bool{}
	for _, m := range p.plan.Moves {
		if versions[m.Version] = true; p.begun[m.Version].IsZero() {
			p.begun[m.Version] = now
		}
	}
	for version, begun := range p.begun {
		if !versions[version] {
			delete(p.begun, version)
		} else if now.Sub(begun) >= p.roundLimit() {
			late = max(late, version)
		}
	}
	if late == 0 {
		return p.members
	}
	all := make(map[string]record, len(p.members))
	for id, r := range p.members {
		r.Confirmed = max(r.Confirmed, late)
		all[id] = r
	}
	return all
}

// wakeup returns the time at which the leader must compute the next plan again although nothing has
// changed, because a delay or a limit ends.
func (p *planner) wakeup(now time.Time) time.Time {
	at := now.Add(maxIdle)
	for _, m := range p.plan.Members {
		if m.Away.After(now) {
			at = earlierTime(at, m.Away)
		}
	}
	for _, m := range p.plan.Moves {
		begun := p.begun[m.Version]
		if begun.IsZero() {
			begun = now
		}
		if end := begun.Add(p.roundLimit()); end.After(now) { // afterwards the move counts as confirmed
			at = earlierTime(at, end)
		}
	}
	return at
}
