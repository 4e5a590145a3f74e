// Command shards divides 64 tenants among workers, each of which is a process, kills some of them, and
// shows which worker has which tenant.
//
//	go run ./examples/shards                       # on an embedded server
//	go run ./examples/shards --zk localhost:2181
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/recipes/shard"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func main() {
	servers := flag.String("zk", "", "ZooKeeper servers, host:port,...; by default an embedded server")
	worker := flag.String("worker", "", "name of a worker, which ends with its standard input; used by the program itself")
	flag.Parse()
	ctx := context.Background()
	var err error
	if *worker != "" {
		err = work(ctx, *servers, *worker)
	} else {
		err = run(ctx, *servers, os.Stdout)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// tenants connects to ZooKeeper, and returns the group of workers and the connection.
func tenants(servers string) (*shard.Group, *zk.Conn, error) {
	conn, _, err := zkdial.Connect(strings.Split(servers, ","), 4*time.Second)
	if err != nil {
		return nil, nil, err
	}
	group, err := shard.NewGroup(conn, "/tenants")
	return group, conn, err
}

// work is the program of a worker.
func work(ctx context.Context, servers, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // returns when the parent closes the pipe or ends
		cancel()
	}()
	group, conn, err := tenants(servers)
	if err != nil {
		return err
	}
	defer conn.Close()
	return group.Run(ctx, name, func(ctx context.Context, s *shard.Shard) error {
		<-ctx.Done() // here the program works for the tenant s.Name()
		return nil
	})
}

// demo is the state of the parent process, which starts the workers.
type demo struct {
	servers string
	group   *shard.Group
	out     io.Writer
	workers map[string]*process
}

// process is a running worker process.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

// run starts and kills workers, and prints after each step which worker has which tenant.
func run(ctx context.Context, servers string, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if servers == "" {
		server, err := zktest.NewServer()
		if err != nil {
			return err
		}
		defer server.Close()
		servers = server.Addr()
	}
	group, conn, err := tenants(servers)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = group.Update(ctx, func(s *shard.Spec) error {
		s.Shards = nil
		for i := range 64 {
			s.Shards = append(s.Shards, fmt.Sprintf("tenant-%02d", i))
		}
		return nil
	})
	if err != nil {
		return err
	}
	d := demo{servers: servers, group: group, out: out, workers: map[string]*process{}}
	defer func() {
		for name := range d.workers {
			err = errors.Join(err, d.end(name))
		}
	}()
	for _, step := range []struct {
		title       string
		start, kill []string
	}{
		{title: "five workers start", start: []string{"1", "2", "3", "4", "5"}},
		{title: "workers 2 and 4 are killed", kill: []string{"2", "4"}},
		{title: "worker 6 starts", start: []string{"6"}},
	} {
		fmt.Fprintln(out, step.title)
		for _, name := range step.start {
			if err := d.start(name); err != nil {
				return err
			}
		}
		for _, name := range step.kill {
			_ = d.workers[name].cmd.Process.Kill()
			_ = d.workers[name].cmd.Wait()
			delete(d.workers, name)
		}
		if err := d.show(ctx); err != nil {
			return err
		}
	}
	owner, err := group.Owner(ctx, "tenant-07")
	fmt.Fprintf(out, "tenant-07: worker %s, with token %d\n", owner.Member, owner.Token)
	return err
}

// start starts a worker.
func (d *demo) start(name string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, "-zk="+d.servers, "-worker="+name)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		d.workers[name] = &process{cmd, stdin}
	}
	return err
}

// end lets a worker leave, and waits for it.
func (d *demo) end(name string) error {
	_ = d.workers[name].stdin.Close()
	return d.workers[name].cmd.Wait()
}

// show waits until the workers that run have all tenants, and shows which worker has which tenant: one
// digit for each.
func (d *demo) show(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := time.Now()
	for m := range d.group.Watch(ctx) {
		if err := errors.Join(m.Err, m.Cause); err != nil {
			return err
		}
		loads := map[string]int{}
		var line strings.Builder
		for _, tenant := range slices.Sorted(maps.Keys(m.Owners)) {
			loads[m.Owners[tenant]]++
			line.WriteString(m.Owners[tenant])
		}
		complete := len(m.Owners) == 64 && len(m.Moves) == 0 && len(loads) == len(d.workers)
		for name := range loads {
			complete = complete && d.workers[name] != nil
		}
		if !complete {
			continue
		}
		fmt.Fprintf(d.out, "  %s  after %.1f s\n ", line.String(), time.Since(begin).Seconds())
		for _, name := range slices.Sorted(maps.Keys(loads)) {
			fmt.Fprintf(d.out, " worker %s: %d", name, loads[name])
		}
		fmt.Fprintln(d.out)
		return nil
	}
	return context.Cause(ctx)
}
