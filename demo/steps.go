package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
)

// runSteps runs all steps, with a pause after each of them.
func (d *demo) runSteps(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		d.join, d.crash, d.rejoin, d.resign, d.partition, d.heal,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		d.screen.printTable()
		select {
		case <-time.After(d.options.Pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := d.endElection(ctx); err != nil {
		return err
	}
	d.screen.printTable()
	return nil
}

func (d *demo) join(ctx context.Context) error {
	d.startStep("Three candidates join",
		"Each has its own session. The first candidate leads, and each other",
		"candidate watches its predecessor in the queue.")
	for _, p := range []*participant{d.ada, d.bob, d.cyn} {
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	d.monitor.startClock()
	for _, p := range []*participant{d.ada, d.bob, d.cyn} {
		if err := p.joinElection(d.node); err != nil {
			return err
		}
		_, err := d.monitor.awaitState(ctx, joinLimit, p.name, "join", func(r participantState) bool { return !r.since.IsZero() })
		if err != nil {
			return err
		}
	}
	if !d.monitor.state("ada").isLeader() {
		return errors.New("ada is at the head of the queue and does not lead")
	}
	if err := d.writeAsLeader(d.ada); err != nil {
		return err
	}
	token := d.monitor.state("ada").leadership.Token()
	return d.monitor.awaitObservation(ctx, joinLimit, func(o leaderelection.Observation) bool {
		return o.Leader != nil && o.Leader.Token == token
	})
}

func (d *demo) crash(ctx context.Context) error {
	d.startStep("The leader crashes",
		"ada disappears without closing its session, as if its process were killed.",
		fmt.Sprintf("The servers expire the session after %v; then the next candidate leads.", d.options.Session))
	since := d.monitor.startClock()
	d.ada.crash()
	d.crashed = append(d.crashed, d.ada.session)
	d.ada.session = nil
	s, err := d.awaitSuccession(ctx, since, "crash", d.ada, d.bob)
	if err != nil {
		return err
	}
	d.printConclusion(s.String())
	return nil
}

func (d *demo) rejoin(ctx context.Context) error {
	d.startStep("A candidate joins again",
		"ada is started again. It joins at the end of the queue.")
	d.monitor.startClock()
	if err := d.ada.start(ctx); err != nil {
		return err
	}
	if err := d.ada.joinElection(d.node); err != nil {
		return err
	}
	return d.awaitFollower(ctx, joinLimit, d.ada, d.cyn)
}

func (d *demo) resign(ctx context.Context) error {
	d.startStep("The leader resigns",
		"bob deletes its znode, so its successor does not wait for a timeout.")
	since := d.monitor.startClock()
	d.monitor.printEvent("bob", "resigns", yellow)
	if err := d.bob.election.Resign(); err != nil {
		return err
	}
	s, err := d.awaitSuccession(ctx, since, "resignation", d.bob, d.cyn)
	if err != nil {
		return err
	}
	if err := d.writeAsLeader(d.cyn); err != nil {
		return err
	}
	if err := d.requireRefusal(d.bob); err != nil {
		return err
	}
	if err := d.bob.joinElection(d.node); err != nil {
		return err
	}
	if err := d.awaitFollower(ctx, joinLimit, d.bob, d.ada); err != nil {
		return err
	}
	d.printConclusion(s.String())
	return nil
}

func (d *demo) partition(ctx context.Context) error {
	d.startStep("The leader is cut off",
		fmt.Sprintf(d.servers.partitionText, d.cyn.name),
		"cyn must notice this, and stop, before another candidate can lead.")
	since := d.monitor.startClock()
	d.servers.partition(d.cyn.index, d.cyn.session.link)
	d.monitor.printEvent("cyn", "is cut off", red)
	leadership := d.monitor.state("cyn").leadership
	select {
	case <-leadership.Done():
	case <-time.After(d.expiryLimit()):
		return fmt.Errorf("cyn was not suspended within %v", d.expiryLimit())
	case <-ctx.Done():
		return ctx.Err()
	}
	connState := d.cyn.session.conn.State()
	suspended, err := d.monitor.awaitState(ctx, time.Second, "cyn", "receive the status Suspended", func(r participantState) bool {
		return r.status.Role == leaderelection.Suspended
	})
	if err != nil {
		return err
	}
	if err := d.requireRefusal(d.cyn); err != nil {
		return err
	}
	s, err := d.awaitSuccession(ctx, since, "cut-off", d.cyn, d.ada)
	if err != nil {
		return err
	}
	s.stopped = suspended.since.Sub(since)
	if s.stopped >= s.took {
		return fmt.Errorf("%w: cyn stopped after %v, ada led after %v", errTwoLeaders, s.stopped, s.took)
	}
	if err := d.writeAsLeader(d.ada); err != nil {
		return err
	}
	d.printConclusion(s.String())
	switch text := fmt.Sprintf("cyn had stopped %s before", millis(s.took-s.stopped)); connState {
	case zk.StateHasSession:
		d.printConclusion(text + ", although its connection looked healthy.")
	default:
		d.printConclusion(text + ".")
	}
	return nil
}

func (d *demo) heal(ctx context.Context) error {
	d.startStep("The server reconnects",
		"cyn learns that its session has expired. It has the option WithRejoin, so it",
		"joins at the end of the queue, in a new session.")
	d.monitor.startClock()
	d.servers.heal(d.cyn.index, d.cyn.session.link)
	return d.awaitFollower(ctx, rejoinLimit, d.cyn, d.bob)
}

func (d *demo) endElection(ctx context.Context) error {
	d.startStep("The election is ended",
		"Any client may end an election: here bob, a follower. Every candidate,",
		"current or future, receives ErrElectionOver.")
	d.monitor.startClock()
	d.monitor.allowEnd()
	// If slow servers do not confirm the end in time, EndElection continues in the background.
	if err := d.bob.election.EndElection(); err != nil && !errors.Is(err, leaderelection.ErrUnconfirmed) {
		return err
	}
	for _, p := range []*participant{d.ada, d.bob, d.cyn} {
		r, err := d.monitor.awaitState(ctx, endLimit, p.name, "receive ErrElectionOver", func(r participantState) bool { return r.absence != "" })
		if err != nil {
			return err
		}
		if !errors.Is(r.status.Err, leaderelection.ErrElectionOver) {
			return fmt.Errorf("%s received %v instead of ErrElectionOver", p.name, r.status.Err)
		}
		d.result.over = append(d.result.over, p.name)
	}
	return d.monitor.awaitObservation(ctx, endLimit, func(o leaderelection.Observation) bool {
		return errors.Is(o.Err, leaderelection.ErrElectionOver)
	})
}

// startStep prints the title and the description of a step.
func (d *demo) startStep(title string, description ...string) {
	d.steps++
	lines := []line{{}, {fmt.Sprintf("%d  %s", d.steps, title), bold}}
	for _, text := range description {
		lines = append(lines, line{"   " + text, dim})
	}
	d.screen.print(lines...)
}

// printConclusion prints the result of a step.
func (d *demo) printConclusion(text string) { d.screen.print(line{"   => " + text, bold}) }

// expiryLimit is the time limit of steps that wait for the expiry of a session.
func (d *demo) expiryLimit() time.Duration { return 3*d.options.Session + 5*time.Second }

// awaitSuccession waits until the successor leads and the observer sees it.
func (d *demo) awaitSuccession(ctx context.Context, since time.Time, cause string, from, to *participant) (*succession, error) {
	limit := d.expiryLimit()
	if cause == "resignation" {
		limit = resignLimit
	}
	r, err := d.monitor.awaitState(ctx, limit, to.name, "lead after the "+cause, participantState.isLeader)
	if err != nil && len(d.options.Servers) > 0 && ctx.Err() == nil {
		err = fmt.Errorf("%w; do your servers grant sessions of %v? (--session)", err, d.options.Session)
	}
	if err != nil {
		return nil, err
	}
	s := &succession{
		from: from.name, to: to.name, cause: cause,
		took: r.since.Sub(since), token: r.status.Leadership.Token(),
	}
	d.result.successions = append(d.result.successions, s)
	return s, d.monitor.awaitObservation(ctx, joinLimit, func(o leaderelection.Observation) bool {
		return o.Leader != nil && o.Leader.Token == s.token
	})
}

// awaitFollower waits until p follows the participant predecessor.
func (d *demo) awaitFollower(ctx context.Context, limit time.Duration, p, predecessor *participant) error {
	_, err := d.monitor.awaitState(ctx, limit, p.name, "follow "+predecessor.name, func(r participantState) bool {
		return r.absence == "" && r.status.NowFollowing != "" && r.status.NowFollowing == predecessor.election.ID()
	})
	return err
}

// writeAsLeader writes in a transaction that ZooKeeper applies only while p leads.
func (d *demo) writeAsLeader(p *participant) error {
	_, err := d.monitor.state(p.name).leadership.Multi(&zk.SetDataRequest{Path: d.data, Data: []byte(p.name), Version: -1})
	if err != nil {
		return fmt.Errorf("%s leads and could not write: %w", p.name, err)
	}
	d.monitor.printEvent(p.name, "writes as leader: accepted", green)
	return nil
}

// requireRefusal writes for a candidate that no longer leads, and requires that the write is refused.
func (d *demo) requireRefusal(p *participant) error {
	attempt := "not " + p.name
	_, err := d.monitor.state(p.name).leadership.Multi(&zk.SetDataRequest{Path: d.data, Data: []byte(attempt), Version: -1})
	if !errors.Is(err, leaderelection.ErrNotLeader) {
		return fmt.Errorf("%s does not lead and its write got %v instead of ErrNotLeader", p.name, err)
	}
	// The server may lag behind the others.
	if _, err := d.control.conn.Sync(d.data); err != nil {
		return err
	}
	data, _, err := d.control.conn.Get(d.data)
	if err != nil {
		return err
	}
	if string(data) == attempt {
		return fmt.Errorf("%s does not lead and has written %q", p.name, data)
	}
	d.monitor.printEvent(p.name, "tries to write too: refused (ErrNotLeader)", yellow)
	d.result.refused = append(d.result.refused, p.name)
	return nil
}
