package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// demo is one run of the demo.
type demo struct {
	options  options
	out      *output
	monitor  *monitor
	embedded *zktest.Ensemble // the servers in this process; nil if the user has named servers
	root     string           // the znode above all other znodes of the demo
	node     string           // the election node
	data     string           // the znode that the leader writes

	ada, bob, cyn *participant
	control       *session // sends the requests that are not those of a participant
}

// runDemo runs all steps, prints them to out, and deletes what it has created. An error means that a
// step did not happen as expected; runDemo has printed it.
func runDemo(ctx context.Context, opts options, out io.Writer, colour bool) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &demo{
		options: opts, out: &output{out: out, colour: colour, stop: cancel},
		root: "/leaderelection-demo-" + strings.ToLower(rand.Text()[:8]),
	}
	d.node, d.data = d.root+"/election", d.root+"/data"
	d.monitor = &monitor{out: d.out, changed: make(chan struct{})}
	for i, name := range []string{"ada", "bob", "cyn"} {
		p := &participant{name: name, index: i, addrs: opts.servers, monitor: d.monitor, absence: "not started"}
		d.monitor.participants = append(d.monitor.participants, p)
	}
	d.ada, d.bob, d.cyn = d.monitor.participants[0], d.monitor.participants[1], d.monitor.participants[2]
	if err = d.prepare(ctx); err == nil {
		err = d.runSteps(ctx)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		d.out.print(line{}, line{"Interrupted.", red})
	default:
		d.out.print(line{}, line{"FAILED: " + err.Error(), red})
	}
	return errors.Join(err, d.cleanUp())
}

// prepare starts or connects to the servers, creates the znodes, and starts the observer.
func (d *demo) prepare(ctx context.Context) (err error) {
	d.out.print(line{"Leader election on ZooKeeper: three candidates, one leader", bold})
	description := "Your ZooKeeper"
	if len(d.options.servers) == 0 {
		description = "Three embedded servers (package zktest), over TCP on loopback"
		if d.embedded, err = zktest.NewEnsemble(3); err != nil {
			return err
		}
		for _, p := range d.monitor.participants {
			addr, err := d.serverOf(p).Listen()
			if err != nil {
				return fmt.Errorf("start a server: %w", err)
			}
			p.addrs = []string{addr}
		}
	}
	if d.control, err = openSession(ctx, d.ada.addrs, d.options.session); err != nil {
		return err
	}
	for _, path := range []string{d.root, d.node, d.data} {
		if _, err := d.control.conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			return fmt.Errorf("create %s: %w", path, err)
		}
	}
	// The observer must not end with ctx. It ends when its connection is closed.
	observations, err := leaderelection.Observe(context.WithoutCancel(ctx), d.control.conn, d.node, leaderelection.WithSessionTimeout(d.options.session))
	if err != nil {
		return err
	}
	d.control.readers.Go(func() {
		for o := range observations {
			d.monitor.updateState(func() { d.monitor.observed = o })
		}
	})
	d.out.print(line{fmt.Sprintf("%s. Sessions of %v.", description, d.options.session), dim})
	return nil
}

// serverOf returns the embedded server of a participant. The first participant uses the leader of the
// ensemble. The demo never partitions that server, because the others would elect another leader and
// close all connections.
func (d *demo) serverOf(p *participant) *zktest.Server {
	return d.embedded.Server((d.embedded.Leader().ID() + p.index) % d.embedded.Len())
}

// start connects a participant to ZooKeeper.
func (d *demo) start(ctx context.Context, p *participant) (err error) {
	if p.session, err = openSession(ctx, p.addrs, d.options.session); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// setPartitioned begins or ends a partition of a participant. An embedded server is partitioned together
// with its client. This case is difficult for a leader, because the server still answers its client.
func (d *demo) setPartitioned(p *participant, partitioned bool) {
	switch {
	case d.embedded == nil:
		p.session.link.setPartitioned(partitioned)
	case partitioned:
		d.serverOf(p).Partition()
	default:
		d.serverOf(p).Heal()
	}
}

// cleanUp deletes what the demo has created, after any number of steps.
func (d *demo) cleanUp() (err error) {
	d.monitor.allowEnd()
	d.out.print(line{}, line{"Cleaning up ...", dim})
	done := "No znodes remain"
	if d.control != nil {
		err = d.deleteNodes()
		d.control.close()
		done = "Deleted " + d.root
	}
	for _, p := range d.monitor.participants {
		if p.session != nil {
			p.session.close()
		}
	}
	if d.embedded != nil {
		d.embedded.Close()
		done += ", stopped the servers"
	}
	if err != nil {
		d.out.print(line{fmt.Sprintf("Some znodes remain below %s: %v", d.root, err), red})
		return err
	}
	d.out.print(line{done + ".", dim})
	return nil
}

// deleteNodes deletes the znodes of the demo that exist.
func (d *demo) deleteNodes() error {
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	err := leaderelection.DeleteElection(d.control.conn, d.node,
		leaderelection.WithContext(ctx), leaderelection.WithSessionTimeout(d.options.session))
	for _, path := range []string{d.data, d.root} {
		if err == nil {
			if err = d.control.conn.Delete(path, -1); errors.Is(err, zk.ErrNoNode) {
				err = nil
			}
		}
	}
	return err
}
