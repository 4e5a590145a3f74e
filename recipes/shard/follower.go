package shard

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/event"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/value"
)

// follower is a goroutine of a member. It decides for which shards the member contends.
type follower struct {
	member *Member
	record record
	ctx    context.Context // the context of watches and comparisons, which lasts until the member has left

	plans    <-chan value.Change[Plan]
	written  Plan            // the last plan that a leader has written
	plan     Plan            // the plan that this member follows: written, or a plan that it has computed itself
	mine     map[string]bool // the shards that belong to this member in the plan
	reasons  map[string]Move // the moves of the plan that concern shards of this member
	contends map[string]*contention
	events   chan contentionEvent
	held     int      // the number of shards in mine that the member holds
	confirm  bool     // reports that the leader waits until this member confirms the plan
	changed  bool     // reports that the set of owned shards has changed, so that deliver must send it
	sent     []*Shard // the last set that deliver has sent: it is still in the channel, or the user has received it
	computed bool     // reports that this member has computed the plan in the field plan itself
	closing  bool     // reports that the member leaves
	taken    bool     // reports that another process has taken the ID after the session of this member has ended

	takenOver chan bool // receives new values of taken; the follower needs only the newest one

	comparing bool // reports that a comparison is running
	compared  chan comparison
	differed  int64 // the version of the plan that the last comparison has found outdated; -1 for none
}

// contention is the attempt to own one shard. It exists until its goroutine has ended.
type contention struct {
	stop    context.CancelCauseFunc
	stopped bool
	shard   *Shard // the shard, while the member holds it, or nil
}

// contentionEvent is a report of the goroutine of a contention.
type contentionEvent struct {
	name  string
	shard *Shard // the shard that the member holds now, or nil if the member does not hold it any more
	ended bool   // reports that the goroutine has ended
	err   error  // the reason why the goroutine has ended; nil after stopContention
}

func newFollower(m *Member) *follower {
	return &follower{
		member:   m,
		record:   record{Zone: m.group.settings.zone, Weight: m.group.settings.weight},
		contends: map[string]*contention{}, events: make(chan contentionEvent), compared: make(chan comparison, 1), differed: -1,
		takenOver: make(chan bool, 1),
	}
}

// run follows plans until the member has left.
func (f *follower) run(life context.Context) {
	m := f.member
	ctx, cancel := context.WithCancel(context.Background())
	f.ctx = ctx
	m.group.report(event.Event{Kind: event.Opened})
	f.plans = m.group.plan.Watch(ctx)
	led := connection.Start(func() (struct{}, error) { m.lead(ctx); return struct{}{}, nil })
	m.reason = f.follow(life)
	m.stop(m.reason) // releases the context
	f.leave()
	close(m.drained)
	f.awaitPlanned()
	cancel()
	<-led
	m.removal = m.keeper.Close(context.Background(), recipes.ErrClosed)
	for range f.plans { // wait until the goroutine of the watch has closed the channel
	}
	if f.comparing {
		<-f.compared
	}
	m.group.report(event.Event{Kind: event.Ended, Err: m.reason})
	close(m.ended)
}

// follow follows plans until life is done or the member cannot continue, and returns the reason.
func (f *follower) follow(life context.Context) error {
	interval := 2 * f.member.group.setup.SessionTimeout()
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		f.deliver()
		f.confirmPlan()
		select {
		case c := <-f.plans:
			if c.Err != nil {
				return c.Err
			}
			f.receivePlan(c)
		case e := <-f.events:
			if err := f.receiveContention(e); err != nil {
				return err
			}
		case taken := <-f.takenOver:
			if f.taken != taken {
				f.taken = taken
				f.adoptPlan(f.plan)
			}
		case <-timer.C:
			timer.Reset(interval)
			f.startComparison()
		case c := <-f.compared:
			f.receiveComparison(c)
		case <-f.member.keeper.Done():
			return f.member.keeper.Err()
		case <-life.Done():
			return context.Cause(life)
		}
	}
}

// leave announces to the other members that this member leaves, and releases all shards.
func (f *follower) leave() {
	m, why := f.member, Left
	f.closing, f.record.State = true, leaving
	if m.group.settings.restart {
		why, f.record.State = Restarted, restarting
	}
	f.writeRecord()
	for name, c := range f.contends {
		f.stopContention(c, &MovedError{Shard: name, Reason: why})
	}
	for len(f.contends) > 0 {
		_ = f.receiveContention(<-f.events)
	}
	if m.run == nil {
		f.takeBack()
		m.owned <- Owned{Err: m.reason}
		close(m.owned)
	}
}

// plannedLimit is how long a member that leaves waits for a plan without the member. If the member did not wait,
// the others would believe that it has crashed.
const plannedLimit = time.Second

// awaitPlanned waits until the plan does not contain the member, or lists it as away.
func (f *follower) awaitPlanned() {
	timer := time.NewTimer(plannedLimit)
	defer timer.Stop()
	for {
		me, _ := f.written.member(f.member.id)
		owns := false
		for _, owner := range f.written.Owners {
			owns = owns || owner == f.member.id
		}
		if !owns || !me.Away.IsZero() {
			return
		}
		select {
		case c, ok := <-f.plans:
			if !ok || c.Err != nil {
				return
			}
			f.written = c.Value
		case <-f.member.keeper.Done():
			return
		case <-timer.C:
			return
		}
	}
}

// writeRecord writes the record of the member to its znode.
func (f *follower) writeRecord() {
	data, _ := json.Marshal(f.record) // Marshal cannot fail, because a record contains only strings and numbers
	f.member.keeper.Set(data)
}

// receivePlan handles a change of the znode of the plan: the member follows the new plan.
func (f *follower) receivePlan(c value.Change[Plan]) {
	switch {
	case c.Cause != nil:
		f.member.group.setup.Log.Warn("cannot read the plan: keeping the previous one", "err", c.Cause)
	case c.Value.Version == 0 && f.written.Version > 0: // the plan was deleted
	default:
		f.written, f.computed, f.differed = c.Value, false, -1
		f.adoptPlan(c.Value)
	}
}

// adoptPlan makes the member contend for the shards that belong to it in the plan, and stop contending for others.
func (f *follower) adoptPlan(plan Plan) {
	id := f.member.id
	f.plan, f.mine, f.reasons, f.confirm = plan, map[string]bool{}, map[string]Move{}, false
	f.reportPlan()
	for shard, owner := range plan.Owners {
		if owner == id && !f.taken {
			f.mine[shard] = true
		}
	}
	for _, m := range plan.Moves {
		if m.To == id || m.From == id {
			f.reasons[m.Shard] = m
		}
		f.confirm = f.confirm || m.To == id && m.Version > f.record.Confirmed && !f.computed && !f.taken
	}
	for name, c := range f.contends {
		if !f.mine[name] {
			why := f.reasons[name].Reason
			switch {
			case f.taken:
				why = Lost
			case why != "":
			case plan.Owners[name] == "":
				why = Removed
			default:
				why = Balanced // no move of this plan explains the change, so the move was in an earlier plan
			}
			f.stopContention(c, &MovedError{Shard: name, To: plan.Owners[name], Reason: why})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.mine)) {
		if f.contends[name] == nil {
			f.startContention(name)
		}
	}
}

// startContention makes the member contend for the lock of a shard.
func (f *follower) startContention(name string) {
	ctx, stop := context.WithCancelCause(context.Background())
	f.contends[name] = &contention{stop: stop}
	reason := Reason("")
	if move := f.reasons[name]; move.To == f.member.id {
		reason = move.Reason
	}
	go func() {
		err := f.member.contend(ctx, name, reason, func(s *Shard) { f.events <- contentionEvent{name: name, shard: s} })
		stop(nil)
		f.events <- contentionEvent{name: name, ended: true, err: err}
	}()
}

// stopContention asks a contention to end, for the reason why.
func (f *follower) stopContention(c *contention, why *MovedError) {
	if c.stopped {
		return
	}
	f.takeBack()
	if c.stopped = true; c.shard != nil {
		f.held--
		f.changed = true
	}
	c.stop(why)
}

// receiveContention handles a report of a contention. It returns an error if the member cannot continue.
func (f *follower) receiveContention(e contentionEvent) error {
	c := f.contends[e.name]
	if e.ended {
		delete(f.contends, e.name)
		if e.err == nil && f.mine[e.name] && !f.closing {
			f.startContention(e.name) // start again, because a later plan has given the shard back to this member
		}
		return e.err
	}
	if !c.stopped {
		f.changed = true
		if e.shard != nil {
			f.held++
		} else {
			f.held--
		}
	}
	c.shard = e.shard
	return nil
}

// deliver sends the set of owned shards to the user if it has changed.
func (f *follower) deliver() {
	if f.member.run != nil || !f.changed {
		return
	}
	f.takeBack()
	var set []*Shard
	for _, c := range f.contends {
		if c.shard != nil && !c.stopped {
			set = append(set, c.shard)
		}
	}
	slices.SortFunc(set, func(a, b *Shard) int { return strings.Compare(a.name, b.name) })
	f.changed, f.sent = false, set
	f.member.owned <- Owned{Shards: slices.Clone(set)} // does not block, because the channel is empty
}

// takeBack removes the last set from the channel. If the channel is empty, the user has received that set,
// and takeBack records this.
func (f *follower) takeBack() {
	select {
	case <-f.member.owned:
		f.changed = true
	default:
		for _, s := range f.sent {
			s.delivered.Store(true)
		}
	}
	f.sent = nil
}

// confirmPlan confirms the plan to the leader when the member holds all of its shards.
func (f *follower) confirmPlan() {
	if f.confirm && f.held == len(f.mine) {
		f.confirm, f.record.Confirmed = false, f.plan.Version
		f.writeRecord()
	}
}

// comparison is the result of comparing a plan with the present members and the Spec.
type comparison struct {
	version int64 // the version of the plan
	err     error
	differs bool
	plan    *Plan // the next plan; nil if compute was not set
}

// startComparison starts a goroutine that compares the last plan with the present members and the Spec, unless such a
// goroutine is running. The follower of the leader compares as well, because the leader may be unable to write
// plans.
func (f *follower) startComparison() {
	if f.comparing {
		return
	}
	f.comparing = true
	g, plan, compute := f.member.group, f.written, f.differed == f.written.Version
	go func() { f.compared <- g.compare(f.ctx, plan, compute) }()
}

// compare compares a plan with the present members and the Spec. If they differ and compute is set, it also
// returns the next plan.
func (g *Group) compare(ctx context.Context, plan Plan, compute bool) comparison {
	c := comparison{version: plan.Version}
	present, err := g.ids.Members(ctx)
	var zxid int64
	if err == nil {
		zxid, err = g.specZxid(ctx)
	}
	if c.err = err; err != nil {
		return c
	}
	ids := map[string]bool{}
	for _, m := range present {
		_, planned := plan.member(m.ID)
		ids[m.ID], c.differs = true, c.differs || !planned
	}
	for _, m := range plan.Members {
		c.differs = c.differs || m.Away.IsZero() && !ids[m.ID]
	}
	if c.differs = c.differs || zxid != plan.SpecZxid; !c.differs || !compute {
		return c
	}
	members, err := g.members.Members(ctx)
	var spec Spec
	var version value.Version
	if err == nil {
		spec, version, err = g.spec.Get(ctx)
	}
	if err == nil {
		if err = spec.normalize(); err != nil {
			g.setup.Log.Warn("the spec of the shards is not valid: not computing a plan", "err", err)
		}
	}
	if c.err = err; err != nil {
		return c
	}
	computed := nextPlan(plan, recordsOf(members), spec, version.Zxid(), time.Now())
	// The plan is not out of date if only znodes that do not belong to members were added.
	if c.differs = computed.Version != plan.Version; c.differs {
		c.plan = &computed
	}
	return c
}

// specZxid returns the zxid of the last change of the Spec, or 0 if the Spec does not exist.
func (g *Group) specZxid(ctx context.Context) (int64, error) {
	stat, err := connection.ReadStat(ctx, g.setup.Conn, g.specPath())
	if err != nil {
		return 0, err
	}
	return stat.Mzxid, nil
}

// receiveComparison handles the result of a comparison. If the comparison has computed a plan, the member follows
// this plan, unless the leader has written a newer plan in the meantime.
func (f *follower) receiveComparison(c comparison) {
	f.comparing = false
	switch {
	case c.err != nil || c.version != f.written.Version:
		return
	case !c.differs:
		if f.differed = -1; f.computed {
			f.computed = false
			f.adoptPlan(f.written)
		}
		return
	}
	f.differed = c.version
	if c.plan != nil {
		f.member.group.setup.Log.Warn("no leader has planned for the present members: following a computed plan", "version", c.version)
		f.computed = true
		f.adoptPlan(*c.plan)
	}
}
