package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/child"
)

// What ELECTOR_ROLE says.
const (
	roleLeader   = "leader"
	roleFollower = "follower" // the leadership is lost
	roleError    = "error"
)

// environment is that of a command. What others than the command need not know is left
// out.
func (r *runner) environment(role string, l *leaderelection.Leadership, err error) []string {
	set := map[string]string{
		"ELECTOR_ROLE": role, "ELECTOR_TOKEN": "", "ELECTOR_LEADER": "",
		"ELECTOR_ELECTION": r.election, "ELECTOR_INSTANCE_ID": r.instanceID, "ELECTOR_ERROR": "",
	}
	if l != nil {
		set["ELECTOR_TOKEN"] = strconv.FormatInt(l.Token(), 10)
		if role == roleLeader {
			set["ELECTOR_LEADER"] = r.instanceID
		}
	}
	if err != nil {
		set["ELECTOR_ERROR"] = err.Error()
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		_, own := set[name]
		return own || slices.Contains(credentials, name)
	})
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	return env
}

// command is what all that is run has in common. l bounds it, if it is not nil.
func (r *runner) command(args []string, l *leaderelection.Leadership, env []string) child.Command {
	c := child.Command{
		Args: args, Env: env, Stdout: os.Stdout, Stderr: os.Stderr,
		Grace: r.grace, LostGrace: r.boundedLostGrace(),
	}
	if l != nil {
		c.Lease = l.Deadline
	}
	return c
}

// shell runs one of the commands, if it is set.
func (r *runner) shell(ctx context.Context, name, script string, l *leaderelection.Leadership, env []string) error {
	if script == "" {
		return nil
	}
	r.log.Info("running command", "command", name)
	if err := child.Run(ctx, r.command(child.Shell(script), l, env)); err != nil {
		return fmt.Errorf("%s command: %w", name, err)
	}
	return nil
}

func (r *runner) begin(ctx context.Context, l *leaderelection.Leadership) error {
	return r.shell(ctx, "begin", r.beginCommand, l, r.environment(roleLeader, l, nil))
}

func (r *runner) end(ctx context.Context, l *leaderelection.Leadership) error {
	role := roleLeader
	if l.Err() != nil {
		role = roleFollower
	}
	return r.shell(ctx, "end", r.endCommand, nil, r.environment(role, l, nil))
}

func (r *runner) failed(ctx context.Context, l *leaderelection.Leadership, err error) error {
	return r.shell(ctx, "error", r.errorCommand, nil, r.environment(roleError, l, err))
}

// work runs the program until it ends, or ctx is done.
func (r *runner) work(ctx context.Context, l *leaderelection.Leadership) error {
	command := r.command(r.program, l, r.environment(roleLeader, l, nil))
	command.Sweep = true
	for {
		r.log.Info("starting program", "program", r.program[0], "token", l.Token())
		r.starts()
		p, err := child.Start(command)
		r.running(p)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			p.Stop()
		case <-p.Done():
		}
		exit := p.Wait()
		r.running(nil)
		log := r.log.With("code", exit.Code)
		if exit.Err != nil {
			log = log.With("err", exit.Err)
		}
		log.Info("program exited", "stopped", exit.Stopped)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case exit.Err != nil:
			return exit.Err
		case exit.Stopped:
			// The guard has not heard in time that the lease goes on.
			if l.Err() != nil {
				return l.Err()
			}
			continue
		}
		r.mu.Lock()
		r.exit = &exit.Code
		r.mu.Unlock()
		return nil
	}
}
