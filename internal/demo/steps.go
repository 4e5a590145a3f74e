package demo

// The story: each step is one thing that happens to elections.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
)

func (d *demo) story(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		d.join, d.crash, d.rejoinAfterCrash, d.resign, d.cutOff, d.heal,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		d.screen.printTable()
		select {
		case <-time.After(d.Pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := d.end(ctx); err != nil {
		return err
	}
	d.screen.printTable()
	return nil
}

func (d *demo) join(ctx context.Context) error {
	d.step("Three candidates join",
		"Each has its own session. The first candidate leads, and each other",
		"candidate watches its predecessor in the queue.")
	for _, p := range []*participant{d.ada, d.bob, d.cyn} {
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	d.board.startClock()
	for _, p := range []*participant{d.ada, d.bob, d.cyn} {
		if err := p.stand(d.node); err != nil {
			return err
		}
		_, err := d.board.await(ctx, joinBound, p.name, "join", func(r row) bool { return !r.since.IsZero() })
		if err != nil {
			return err
		}
	}
	if !d.board.state("ada").leads() {
		return errors.New("ada is at the head of the queue and does not lead")
	}
	if err := d.write(d.ada); err != nil {
		return err
	}
	token := d.board.state("ada").grant.Token()
	return d.board.awaitObserver(ctx, joinBound, func(o leaderelection.Observation) bool {
		return o.Leader != nil && o.Leader.Token == token
	})
}

func (d *demo) crash(ctx context.Context) error {
	d.step("The leader crashes",
		"ada disappears without closing its session, as if its process were killed.",
		fmt.Sprintf("The servers expire the session after %v; then the next candidate leads.", d.Session))
	since := d.board.startClock()
	d.ada.crash()
	d.crashed = append(d.crashed, d.ada.session)
	d.ada.session = nil
	s, err := d.succeeds(ctx, since, "crash", d.ada, d.bob)
	if err != nil {
		return err
	}
	d.conclude(s.String())
	return nil
}

func (d *demo) rejoinAfterCrash(ctx context.Context) error {
	d.step("A candidate joins again",
		"ada is started again. It joins at the end of the queue.")
	d.board.startClock()
	if err := d.ada.start(ctx); err != nil {
		return err
	}
	if err := d.ada.stand(d.node); err != nil {
		return err
	}
	return d.follows(ctx, joinBound, d.ada, d.cyn)
}

func (d *demo) resign(ctx context.Context) error {
	d.step("The leader resigns",
		"bob deletes its znode, so its successor does not wait for a timeout.")
	since := d.board.startClock()
	d.board.happens("bob", "resigns", yellow)
	if err := d.bob.election.Resign(); err != nil {
		return err
	}
	s, err := d.succeeds(ctx, since, "resignation", d.bob, d.cyn)
	if err != nil {
		return err
	}
	if err := d.write(d.cyn); err != nil {
		return err
	}
	if err := d.writeRefused(d.bob); err != nil {
		return err
	}
	if err := d.bob.stand(d.node); err != nil {
		return err
	}
	if err := d.follows(ctx, joinBound, d.bob, d.ada); err != nil {
		return err
	}
	d.conclude(s.String())
	return nil
}

func (d *demo) cutOff(ctx context.Context) error {
	d.step("The leader is cut off",
		fmt.Sprintf(d.servers.how, d.cyn.name),
		"cyn must notice this, and stop, before another candidate can lead.")
	since := d.board.startClock()
	d.servers.cutOff(d.cyn.seat, d.cyn.session.link)
	d.board.happens("cyn", "is cut off", red)
	former := d.board.state("cyn").grant
	select {
	case <-former.Done():
	case <-time.After(d.sessionBound()):
		return fmt.Errorf("cyn was not suspended within %v", d.sessionBound())
	case <-ctx.Done():
		return ctx.Err()
	}
	seems := d.cyn.session.conn.State()
	suspended, err := d.board.await(ctx, time.Second, "cyn", "receive the status Suspended", func(r row) bool {
		return r.status.Role == leaderelection.Suspended
	})
	if err != nil {
		return err
	}
	if err := d.writeRefused(d.cyn); err != nil {
		return err
	}
	s, err := d.succeeds(ctx, since, "cut-off", d.cyn, d.ada)
	if err != nil {
		return err
	}
	s.stopped = suspended.since.Sub(since)
	if s.stopped >= s.took {
		return fmt.Errorf("%w: cyn stopped after %v, ada led after %v", errTwoLeaders, s.stopped, s.took)
	}
	if err := d.write(d.ada); err != nil {
		return err
	}
	d.conclude(s.String())
	switch text := fmt.Sprintf("cyn had stopped %s before", millis(s.took-s.stopped)); seems {
	case zk.StateHasSession:
		d.conclude(text + ", although its connection looked healthy.")
	default:
		d.conclude(text + ".")
	}
	return nil
}

func (d *demo) heal(ctx context.Context) error {
	d.step("The server reconnects",
		"cyn learns that its session has expired. It has the option WithRejoin, so it",
		"joins at the end of the queue, in a new session.")
	d.board.startClock()
	d.servers.heal(d.cyn.seat, d.cyn.session.link)
	return d.follows(ctx, rejoinBound, d.cyn, d.bob)
}

func (d *demo) end(ctx context.Context) error {
	d.step("The election is ended",
		"Any client may end an election: here bob, a follower. Every candidate,",
		"current or future, receives ErrElectionOver.")
	d.board.startClock()
	d.board.expectEnd()
	// If slow servers do not confirm the end in time, EndElection continues in the background.
	if err := d.bob.election.EndElection(); err != nil && !errors.Is(err, leaderelection.ErrUnconfirmed) {
		return err
	}
	for _, p := range []*participant{d.ada, d.bob, d.cyn} {
		r, err := d.board.await(ctx, endBound, p.name, "receive ErrElectionOver", func(r row) bool { return r.gone != "" })
		if err != nil {
			return err
		}
		if !errors.Is(r.status.Err, leaderelection.ErrElectionOver) {
			return fmt.Errorf("%s was told %v instead of ErrElectionOver", p.name, r.status.Err)
		}
		d.result.over = append(d.result.over, p.name)
	}
	return d.board.awaitObserver(ctx, endBound, func(o leaderelection.Observation) bool {
		return errors.Is(o.Err, leaderelection.ErrElectionOver)
	})
}

// step announces what comes next.
func (d *demo) step(title string, about ...string) {
	d.steps++
	lines := []line{{}, {fmt.Sprintf("%d  %s", d.steps, title), bold}}
	for _, text := range about {
		lines = append(lines, line{"   " + text, dim})
	}
	d.screen.print(lines...)
}

// conclude says what a step has shown.
func (d *demo) conclude(text string) { d.screen.print(line{"   => " + text, bold}) }

// sessionBound is how long the end of a session may take.
func (d *demo) sessionBound() time.Duration { return 3*d.Session + 5*time.Second }

// succeeds waits until the successor leads and the observer sees it.
func (d *demo) succeeds(ctx context.Context, since time.Time, why string, from, to *participant) (*succession, error) {
	bound := d.sessionBound()
	if why == "resignation" {
		bound = resignBound
	}
	r, err := d.board.await(ctx, bound, to.name, "lead after the "+why, row.leads)
	if err != nil && len(d.Servers) > 0 && ctx.Err() == nil {
		err = fmt.Errorf("%w; do your servers grant sessions of %v? (--session)", err, d.Session)
	}
	if err != nil {
		return nil, err
	}
	s := &succession{
		from: from.name, to: to.name, why: why,
		took: r.since.Sub(since), token: r.status.Leadership.Token(),
	}
	d.result.successions = append(d.result.successions, s)
	return s, d.board.awaitObserver(ctx, joinBound, func(o leaderelection.Observation) bool {
		return o.Leader != nil && o.Leader.Token == s.token
	})
}

// follows waits until p follows the participant before.
func (d *demo) follows(ctx context.Context, bound time.Duration, p, before *participant) error {
	_, err := d.board.await(ctx, bound, p.name, "follow "+before.name, func(r row) bool {
		return r.gone == "" && r.status.NowFollowing != "" && r.status.NowFollowing == before.election.ID()
	})
	return err
}

// write writes as leader. ZooKeeper applies a Multi only while p leads.
func (d *demo) write(p *participant) error {
	_, err := p.election.Multi(&zk.SetDataRequest{Path: d.data, Data: []byte(p.name), Version: -1})
	if err != nil {
		return fmt.Errorf("%s leads and could not write: %w", p.name, err)
	}
	d.board.happens(p.name, "writes as leader: accepted", green)
	return nil
}

// writeRefused tries to write for a candidate that no longer leads, and requires a refusal.
func (d *demo) writeRefused(p *participant) error {
	attempt := "not " + p.name
	_, err := p.election.Multi(&zk.SetDataRequest{Path: d.data, Data: []byte(attempt), Version: -1})
	if !errors.Is(err, leaderelection.ErrNotLeader) {
		return fmt.Errorf("%s does not lead and its write got %v instead of ErrNotLeader", p.name, err)
	}
	// The server that is asked may lag behind the others.
	if _, err := d.staff.conn.Sync(d.data); err != nil {
		return err
	}
	data, _, err := d.staff.conn.Get(d.data)
	if err != nil {
		return err
	}
	if string(data) == attempt {
		return fmt.Errorf("%s does not lead and has written %q", p.name, data)
	}
	d.board.happens(p.name, "tries to write too: refused (ErrNotLeader)", yellow)
	d.result.refused = append(d.result.refused, p.name)
	return nil
}
