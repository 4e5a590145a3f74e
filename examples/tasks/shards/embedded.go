package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes/shard"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func init() {
	flag.BoolFunc("embedded", "show on an embedded server which of several workers has which tenant, and exit", func(string) error {
		if err := showWorkers(context.Background()); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
		return nil
	})
}

// workers are the workers that run, each with its own connection.
type workers struct {
	server  *zktest.Server
	conns   map[string]*zk.Conn // by the name of the worker, which is a digit
	running sync.WaitGroup
}

// showWorkers starts workers and stops some of them, and prints after each step which worker has which tenant.
func showWorkers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	server, err := zktest.NewServer()
	if err != nil {
		return err
	}
	defer server.Close()
	conn, _, err := server.Connect(4 * time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	tenants, err := shard.NewGroup(conn, "/tenants")
	if err != nil {
		return err
	}
	_, err = tenants.Update(ctx, func(s *shard.Spec) error {
		s.Shards = names(64)
		return nil
	})
	if err != nil {
		return err
	}
	w := workers{server: server, conns: map[string]*zk.Conn{}}
	defer w.running.Wait()
	defer func() {
		for name := range w.conns {
			w.stop(name)
		}
	}()
	for _, step := range []struct {
		title       string
		start, stop []string
	}{
		{title: "five workers start", start: []string{"1", "2", "3", "4", "5"}},
		{title: "the sessions of workers 2 and 4 end", stop: []string{"2", "4"}},
		{title: "worker 6 starts", start: []string{"6"}},
	} {
		fmt.Println(step.title)
		for _, name := range step.start {
			if err := w.start(ctx, name); err != nil {
				return err
			}
		}
		for _, name := range step.stop {
			w.stop(name)
		}
		if err := w.show(ctx, tenants); err != nil {
			return err
		}
	}
	owner, err := tenants.Owner(ctx, "tenant-07")
	fmt.Printf("tenant-07: worker %s, with token %d\n", owner.Member, owner.Token)
	return err
}

// start starts a worker.
func (w *workers) start(ctx context.Context, name string) error {
	conn, _, err := w.server.Connect(4 * time.Second)
	if err != nil {
		return err
	}
	w.conns[name] = conn
	group, err := shard.NewGroup(conn, "/tenants")
	if err != nil {
		return err
	}
	w.running.Go(func() {
		// Run returns when the connection is closed.
		_ = group.Run(ctx, name, func(ctx context.Context, _ *shard.Shard) error {
			<-ctx.Done() // the work for the tenant
			return nil
		})
	})
	return nil
}

// stop ends the session of a worker. The other workers see what they see when a worker has crashed.
func (w *workers) stop(name string) {
	w.conns[name].Close()
	delete(w.conns, name)
}

// show waits until the workers that run have all tenants, and shows which worker has which tenant: one
// digit for each.
func (w *workers) show(ctx context.Context, tenants *shard.Group) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := time.Now()
	for m := range tenants.Watch(ctx) {
		if err := errors.Join(m.Err, m.Cause); err != nil {
			return err
		}
		loads := map[string]int{}
		var line strings.Builder
		for _, tenant := range slices.Sorted(maps.Keys(m.Owners)) {
			loads[m.Owners[tenant]]++
			line.WriteString(m.Owners[tenant])
		}
		running, loaded := slices.Sorted(maps.Keys(w.conns)), slices.Sorted(maps.Keys(loads))
		if len(m.Owners) < 64 || len(m.Moves) > 0 || !slices.Equal(running, loaded) {
			continue
		}
		fmt.Printf("  %s  after %.1f s\n ", line.String(), time.Since(begin).Seconds())
		for _, name := range loaded {
			fmt.Printf(" worker %s: %d", name, loads[name])
		}
		fmt.Println()
		return nil
	}
	return context.Cause(ctx)
}
