package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
)

// The time limits of steps. Steps that wait for the expiry of a session use demo.expiryLimit.
const (
	stepLimit      = 10 * time.Second
	reconnectLimit = 30 * time.Second // the time in which the client of a partitioned server must connect again
)

func (d *demo) expiryLimit() time.Duration { return 3*d.options.session + 5*time.Second }

// runSteps runs all steps, with a pause after each of them.
func (d *demo) runSteps(ctx context.Context) error {
	partition := "cyn's network drops every packet from now on."
	if d.embedded != nil {
		partition = "cyn's server loses the other two servers, and still talks to its client."
	}
	steps := []struct {
		title string
		run   func(context.Context) error
		text  string // what the step prints: one or two lines
	}{
		{"Three candidates join", d.join, `Each has its own session. The first candidate leads, and each other
candidate watches its predecessor in the queue.`},
		{"The leader crashes", d.crash, fmt.Sprintf(`ada disappears without closing its session, as if its process were killed.
The servers expire the session after %v; then the next candidate leads.`, d.options.session)},
		{"A candidate joins again", d.rejoin, "ada is started again. It joins at the end of the queue."},
		{"The leader resigns", d.resign, "bob deletes its znode, so its successor does not wait for a timeout."},
		{"The leader is cut off", d.showPartition, partition + `
cyn must notice this, and stop, before another candidate can lead.`},
		{"The server reconnects", d.heal, `cyn learns that its session has expired. It has the option WithRejoin, so it
joins at the end of the queue, in a new session.`},
		{"The election is ended", d.endElection, `Any client may end an election: here bob, a follower. Every candidate,
current or future, receives ErrElectionOver.`},
	}
	for i, step := range steps {
		d.out.print(line{}, line{fmt.Sprintf("%d  %s", i+1, step.title), bold})
		for text := range strings.SplitSeq(step.text, "\n") {
			d.out.print(line{"   " + text, dim})
		}
		if err := step.run(ctx); err != nil {
			return err
		}
		d.monitor.printTable()
		if i == len(steps)-1 {
			return nil
		}
		select {
		case <-time.After(d.options.pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (d *demo) join(ctx context.Context) error {
	for _, p := range d.monitor.participants {
		if err := d.start(ctx, p); err != nil {
			return err
		}
	}
	d.monitor.startClock()
	for _, p := range d.monitor.participants {
		if err := p.joinElection(d.node, d.options.session); err != nil {
			return err
		}
		err := d.monitor.await(ctx, stepLimit, p.name+" did not join", func() bool { return !p.since.IsZero() })
		if err != nil {
			return err
		}
	}
	if _, err := d.awaitSuccession(ctx, time.Now(), stepLimit, d.ada); err != nil {
		return err
	}
	return d.writeAsLeader(d.ada)
}

func (d *demo) crash(ctx context.Context) error {
	since := d.monitor.startClock()
	d.monitor.addEvent(d.ada, "crashes", red)
	d.monitor.updateState(func() { d.ada.absence = "crashed" })
	d.ada.session.link.close() // closes the network first, so that the servers do not learn that the session is closed
	d.ada.session.close()
	d.ada.session = nil
	took, err := d.awaitSuccession(ctx, since, d.expiryLimit(), d.bob)
	if err != nil {
		return err
	}
	d.printConclusion("bob leads %s after the crash of ada, with a greater token.", millis(took))
	return nil
}

func (d *demo) rejoin(ctx context.Context) error {
	d.monitor.startClock()
	if err := d.start(ctx, d.ada); err != nil {
		return err
	}
	if err := d.ada.joinElection(d.node, d.options.session); err != nil {
		return err
	}
	return d.awaitFollower(ctx, stepLimit, d.ada, d.cyn)
}

func (d *demo) resign(ctx context.Context) error {
	since := d.monitor.startClock()
	d.monitor.addEvent(d.bob, "resigns", yellow)
	if err := d.bob.election.Resign(); err != nil {
		return err
	}
	took, err := d.awaitSuccession(ctx, since, stepLimit, d.cyn)
	if err != nil {
		return err
	}
	if err := d.writeAsLeader(d.cyn); err != nil {
		return err
	}
	if err := d.requireRefusal(d.bob); err != nil {
		return err
	}
	if err := d.bob.joinElection(d.node, d.options.session); err != nil {
		return err
	}
	if err := d.awaitFollower(ctx, stepLimit, d.bob, d.ada); err != nil {
		return err
	}
	d.printConclusion("cyn leads %s after the resignation of bob, with a greater token.", millis(took))
	return nil
}

func (d *demo) showPartition(ctx context.Context) error {
	since := d.monitor.startClock()
	d.setPartitioned(d.cyn, true)
	d.monitor.addEvent(d.cyn, "is cut off", red)
	var stopped time.Duration
	err := d.monitor.await(ctx, d.expiryLimit(), "cyn was not suspended", func() bool {
		stopped = d.cyn.since.Sub(since)
		return d.cyn.status.Role == leaderelection.Suspended
	})
	if err != nil {
		return err
	}
	connState := d.cyn.session.conn.State()
	if err := d.requireRefusal(d.cyn); err != nil {
		return err
	}
	took, err := d.awaitSuccession(ctx, since, d.expiryLimit(), d.ada)
	if err != nil {
		return err
	}
	if stopped >= took {
		return fmt.Errorf("%w: cyn stopped after %v, ada led after %v", errTwoLeaders, stopped, took)
	}
	if err := d.writeAsLeader(d.ada); err != nil {
		return err
	}
	d.printConclusion("ada leads %s after the cut-off of cyn, with a greater token.", millis(took))
	if connState == zk.StateHasSession {
		d.printConclusion("cyn had stopped %s before, although its connection looked healthy.", millis(took-stopped))
	} else {
		d.printConclusion("cyn had stopped %s before.", millis(took-stopped))
	}
	return nil
}

func (d *demo) heal(ctx context.Context) error {
	d.monitor.startClock()
	d.setPartitioned(d.cyn, false)
	return d.awaitFollower(ctx, reconnectLimit, d.cyn, d.bob)
}

func (d *demo) endElection(ctx context.Context) error {
	d.monitor.startClock()
	d.monitor.allowEnd()
	// If slow servers do not confirm the end in time, EndElection continues in the background.
	if err := d.bob.election.EndElection(); err != nil && !errors.Is(err, leaderelection.ErrUnconfirmed) {
		return err
	}
	for _, p := range d.monitor.participants {
		var result error
		err := d.monitor.await(ctx, stepLimit, p.name+" did not receive ErrElectionOver", func() bool {
			result = p.status.Err
			return p.absence != ""
		})
		if err != nil {
			return err
		}
		if !errors.Is(result, leaderelection.ErrElectionOver) {
			return fmt.Errorf("%s received %v instead of ErrElectionOver", p.name, result)
		}
	}
	return d.monitor.await(ctx, stepLimit, "the observer did not see the end", func() bool {
		return errors.Is(d.monitor.observed.Err, leaderelection.ErrElectionOver)
	})
}

// printConclusion prints the result of a step.
func (d *demo) printConclusion(format string, args ...any) {
	d.out.print(line{"   => " + fmt.Sprintf(format, args...), bold})
}

// awaitSuccession waits until the successor leads and the observer sees that. It returns the time
// from since until the successor received the status that it leads.
func (d *demo) awaitSuccession(ctx context.Context, since time.Time, limit time.Duration, successor *participant) (took time.Duration, err error) {
	var token int64
	err = d.monitor.await(ctx, limit, successor.name+" did not lead", func() bool {
		if !successor.isLeader() {
			return false
		}
		took, token = successor.since.Sub(since), successor.leadership.Token()
		return true
	})
	if err != nil && d.embedded == nil && ctx.Err() == nil {
		err = fmt.Errorf("%w; do your servers grant sessions of %v? (--session)", err, d.options.session)
	}
	if err != nil {
		return 0, err
	}
	return took, d.monitor.await(ctx, stepLimit, "the observer did not see the leader", func() bool {
		return d.monitor.observed.Leader != nil && d.monitor.observed.Leader.Token == token
	})
}

// awaitFollower waits until p follows the participant predecessor.
func (d *demo) awaitFollower(ctx context.Context, limit time.Duration, p, predecessor *participant) error {
	return d.monitor.await(ctx, limit, p.name+" did not follow "+predecessor.name, func() bool {
		return p.absence == "" && p.status.NowFollowing != "" && p.status.NowFollowing == predecessor.election.ID()
	})
}

// write writes in a transaction that ZooKeeper applies only during the last leadership of p.
func (d *demo) write(p *participant, text string) error {
	var leadership *leaderelection.Leadership
	d.monitor.updateState(func() { leadership = p.leadership })
	_, err := leadership.Multi(&zk.SetDataRequest{Path: d.data, Data: []byte(text), Version: -1})
	return err
}

// writeAsLeader writes while p leads, and requires that the write is accepted.
func (d *demo) writeAsLeader(p *participant) error {
	if err := d.write(p, p.name); err != nil {
		return fmt.Errorf("%s leads, but could not write: %w", p.name, err)
	}
	d.monitor.addEvent(p, "writes as leader: accepted", green)
	return nil
}

// requireRefusal writes for a candidate that no longer leads, and requires that the write is refused.
func (d *demo) requireRefusal(p *participant) error {
	attempt := "not " + p.name
	if err := d.write(p, attempt); !errors.Is(err, leaderelection.ErrNotLeader) {
		return fmt.Errorf("%s does not lead, but its write returned %v instead of ErrNotLeader", p.name, err)
	}
	// The server of this session may lag behind the others.
	if _, err := d.control.conn.Sync(d.data); err != nil {
		return err
	}
	data, _, err := d.control.conn.Get(d.data)
	if err != nil {
		return err
	}
	if string(data) == attempt {
		return fmt.Errorf("%s does not lead, but has written %q", p.name, data)
	}
	d.monitor.addEvent(p, "tries to write too: refused (ErrNotLeader)", yellow)
	return nil
}
