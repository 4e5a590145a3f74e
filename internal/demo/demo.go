package demo

// The frame around the story: what is made for it, and the cleaning up.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
)

// Bounds for what is expected to happen. What waits for a session's end has
// the session's timeout on top.
const (
	connectBound = 10 * time.Second
	joinBound    = 10 * time.Second
	resignBound  = 5 * time.Second
	rejoinBound  = 30 * time.Second // a server that was cut off has to come back
	endBound     = 10 * time.Second
	cleanBound   = 10 * time.Second
)

// demo is one run.
type demo struct {
	Options
	screen  *screen
	board   *board
	servers *servers
	root    string // holds everything that the demo creates
	node    string // the election
	data    string // what the leader writes to
	steps   int
	result  outcome

	ada, bob, cyn *participant
	staff         *session // for the demo's own requests
	crashed       []*session
	stopObserving func()
}

// outcome is what a run has shown.
type outcome struct {
	root        string
	successions []*succession
	refused     []string // whose writes were refused with ErrNotLeader
	over        []string // who was told ErrElectionOver
}

// succession is a change of leaders.
type succession struct {
	from, to string
	why      string
	took     time.Duration // from the cause until the new leader knows
	stopped  time.Duration // from the cause until the old one knew; cut off only
	token    int64
}

func (s *succession) String() string {
	return fmt.Sprintf("%s leads %s after the %s of %s, with a greater token.", s.to, millis(s.took), s.why, s.from)
}

// run tells the whole story and leaves nothing behind.
func run(ctx context.Context, opts Options, out *screen) (result outcome, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer close(stop)
	helpers.Go(func() {
		select {
		case <-out.failed: // nobody reads
			cancel()
		case <-stop:
		}
	})

	id := strings.ToLower(rand.Text()[:8])
	d := &demo{
		Options: opts, screen: out, root: "/leaderelection-demo-" + id,
		stopObserving: func() {},
	}
	d.node, d.data = d.root+"/election", d.root+"/data"
	d.board = newBoard(out, "ada", "bob", "cyn")
	d.result.root = d.root
	if out.live {
		helpers.Go(func() { d.board.refresh(stop) })
	}
	defer func() {
		switch {
		case err == nil:
		case ctx.Err() != nil:
			out.print(line{}, line{"Interrupted.", red})
		default:
			out.print(line{}, line{"FAILED: " + err.Error(), red})
		}
		err = errors.Join(err, d.cleanUp())
		result = d.result
	}()

	if err := d.prepare(ctx); err != nil {
		return d.result, err
	}
	return d.result, d.story(ctx)
}

// prepare has everything ready for the first step.
func (d *demo) prepare(ctx context.Context) (err error) {
	d.screen.print(line{"Leader election on ZooKeeper: three candidates, one leader", bold})
	if len(d.Servers) > 0 {
		d.servers = userServers(d.Servers)
	} else {
		if d.servers, err = embeddedServers(); err != nil {
			return err
		}
	}
	if d.staff, err = connect(ctx, d.servers.seats[0], d.Session); err != nil {
		return err
	}
	// Creating the election node is the task of whoever uses the library.
	for _, path := range []string{d.root, d.node, d.data} {
		if _, err := d.staff.conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			return fmt.Errorf("create %s: %w", path, err)
		}
	}
	var observing context.Context
	// Not with ctx: after Ctrl-C it is to see that the election is deleted.
	observing, d.stopObserving = context.WithCancel(context.WithoutCancel(ctx))
	observations, err := leaderelection.Observe(observing, d.staff.conn, d.node, leaderelection.WithSessionTimeout(d.Session))
	if err != nil {
		return err
	}
	d.staff.readers.Go(func() {
		for o := range observations {
			d.board.sees(o)
		}
	})
	seat := func(name string, seat int) *participant {
		return &participant{
			name: name, seat: seat, addrs: d.servers.seats[seat], timeout: d.Session, board: d.board,
		}
	}
	d.ada, d.bob, d.cyn = seat("ada", 0), seat("bob", 1), seat("cyn", 2)
	d.screen.print(line{fmt.Sprintf("%s. Sessions of %v.", d.servers.about, d.Session), dim})
	return nil
}

// cleanUp removes what the demo has made, whatever has become of it.
func (d *demo) cleanUp() error {
	d.board.expectEnd()
	d.screen.print(line{}, line{"Cleaning up ...", dim})
	ctx, cancel := context.WithTimeout(context.Background(), cleanBound)
	defer cancel()
	var err error
	if d.staff != nil {
		err = d.deleteNodes(ctx)
		d.stopObserving()
		d.staff.close()
	}
	for _, p := range []*participant{d.ada, d.bob, d.cyn} {
		if p != nil && p.session != nil {
			d.crashed = append(d.crashed, p.session)
		}
	}
	for _, s := range d.crashed {
		s.close()
	}
	done := "Nothing is left behind"
	if d.staff != nil {
		done = "Deleted " + d.root
	}
	if d.servers != nil {
		d.servers.close()
		if len(d.Servers) == 0 {
			done += ", stopped the servers"
		}
	}
	if err != nil {
		d.screen.print(line{fmt.Sprintf("Not all is cleaned up, look for %s: %v", d.root, err), red})
		return err
	}
	d.screen.print(line{done + ".", dim})
	return nil
}

// deleteNodes deletes the demo's part of the tree, half made or not.
func (d *demo) deleteNodes(ctx context.Context) error {
	err := leaderelection.DeleteElection(d.staff.conn, d.node,
		leaderelection.WithContext(ctx), leaderelection.WithSessionTimeout(d.Session))
	if err != nil {
		return err
	}
	deleted := make(chan error, 1)
	go func() {
		for _, path := range []string{d.data, d.root} {
			if err := d.staff.conn.Delete(path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
				deleted <- fmt.Errorf("delete %s: %w", path, err)
				return
			}
		}
		deleted <- nil
	}()
	select {
	case err := <-deleted:
		return err
	case <-ctx.Done():
		return fmt.Errorf("delete %s: %w", d.root, ctx.Err())
	}
}
