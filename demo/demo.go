package main

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

// Time limits of steps. Steps that wait for the expiry of a session use demo.expiryLimit.
const (
	connectLimit = 10 * time.Second
	joinLimit    = 10 * time.Second
	resignLimit  = 5 * time.Second
	rejoinLimit  = 30 * time.Second // includes the reconnect of a partitioned server
	endLimit     = 10 * time.Second
	cleanUpLimit = 10 * time.Second
)

// demo is one run of the demo.
type demo struct {
	options Options
	screen  *screen
	monitor *monitor
	servers *servers
	root    string // the znode above all other znodes of the demo
	node    string // the election node
	data    string // the znode that the leader writes
	steps   int    // number of steps that were started
	result  result

	ada, bob, cyn *participant
	control       *session // for requests that are not those of a participant
	crashed       []*session
	stopObserving func()
}

// result describes a run for tests.
type result struct {
	root        string
	successions []*succession
	refused     []string // participants whose writes were refused with ErrNotLeader
	over        []string // participants that received ErrElectionOver
}

// succession is a change of the leader.
type succession struct {
	from, to string
	cause    string
	took     time.Duration // from the cause until the new leader received its status
	stopped  time.Duration // from the cause until the old leader was suspended, after a partition
	token    int64
}

func (s *succession) String() string {
	return fmt.Sprintf("%s leads %s after the %s of %s, with a greater token.", s.to, millis(s.took), s.cause, s.from)
}

// runDemo runs all steps, and deletes what it has created.
func runDemo(ctx context.Context, opts Options, out *screen) (r result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer close(stop)
	tasks.Go(func() {
		select {
		case <-out.failed: // the output was closed
			cancel()
		case <-stop:
		}
	})

	id := strings.ToLower(rand.Text()[:8])
	d := &demo{
		options: opts, screen: out, root: "/leaderelection-demo-" + id,
		stopObserving: func() {},
	}
	d.node, d.data = d.root+"/election", d.root+"/data"
	d.monitor = newMonitor(out, "ada", "bob", "cyn")
	d.result.root = d.root
	if out.live {
		tasks.Go(func() { d.monitor.refreshTable(stop) })
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
		r = d.result
	}()

	if err := d.prepare(ctx); err != nil {
		return d.result, err
	}
	return d.result, d.runSteps(ctx)
}

// prepare starts or connects to the servers, creates the znodes, and starts the observer.
func (d *demo) prepare(ctx context.Context) (err error) {
	d.screen.print(line{"Leader election on ZooKeeper: three candidates, one leader", bold})
	if len(d.options.Servers) > 0 {
		d.servers = userServers(d.options.Servers)
	} else if d.servers, err = startEmbedded(); err != nil {
		return err
	}
	if d.control, err = openSession(ctx, d.servers.addrs[0], d.options.Session); err != nil {
		return err
	}
	for _, path := range []string{d.root, d.node, d.data} {
		if _, err := d.control.conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			return fmt.Errorf("create %s: %w", path, err)
		}
	}
	var observing context.Context
	// The observer does not stop with ctx, because it must see after Ctrl-C that the election is deleted.
	observing, d.stopObserving = context.WithCancel(context.WithoutCancel(ctx))
	observations, err := leaderelection.Observe(observing, d.control.conn, d.node, leaderelection.WithSessionTimeout(d.options.Session))
	if err != nil {
		return err
	}
	d.control.readers.Go(func() {
		for o := range observations {
			d.monitor.setObservation(o)
		}
	})
	newParticipant := func(name string, index int) *participant {
		return &participant{
			name: name, index: index, addrs: d.servers.addrs[index], sessionTimeout: d.options.Session, monitor: d.monitor,
		}
	}
	d.ada, d.bob, d.cyn = newParticipant("ada", 0), newParticipant("bob", 1), newParticipant("cyn", 2)
	d.screen.print(line{fmt.Sprintf("%s. Sessions of %v.", d.servers.description, d.options.Session), dim})
	return nil
}

// cleanUp deletes what the demo has created, after any number of steps.
func (d *demo) cleanUp() error {
	d.monitor.allowEnd()
	d.screen.print(line{}, line{"Cleaning up ...", dim})
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpLimit)
	defer cancel()
	var err error
	if d.control != nil {
		err = d.deleteNodes(ctx)
		d.stopObserving()
		d.control.close()
	}
	for _, p := range []*participant{d.ada, d.bob, d.cyn} {
		if p != nil && p.session != nil {
			d.crashed = append(d.crashed, p.session)
		}
	}
	for _, s := range d.crashed {
		s.close()
	}
	done := "No znodes remain"
	if d.control != nil {
		done = "Deleted " + d.root
	}
	if d.servers != nil {
		d.servers.close()
		if len(d.options.Servers) == 0 {
			done += ", stopped the servers"
		}
	}
	if err != nil {
		d.screen.print(line{fmt.Sprintf("Some znodes remain below %s: %v", d.root, err), red})
		return err
	}
	d.screen.print(line{done + ".", dim})
	return nil
}

// deleteNodes deletes the znodes of the demo that exist.
func (d *demo) deleteNodes(ctx context.Context) error {
	err := leaderelection.DeleteElection(d.control.conn, d.node,
		leaderelection.WithContext(ctx), leaderelection.WithSessionTimeout(d.options.Session))
	if err != nil {
		return err
	}
	deleted := make(chan error, 1)
	go func() {
		for _, path := range []string{d.data, d.root} {
			if err := d.control.conn.Delete(path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
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
