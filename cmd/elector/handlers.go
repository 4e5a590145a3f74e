package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/child"
)

// What ELECTOR_ROLE says.
const (
	roleLeader   = "leader"
	roleFollower = "follower" // of the end command: the leadership was lost
	roleError    = "error"
)

// deadlineFormat is RFC 3339 with all nine digits of the nanoseconds, so that texts in UTC
// are ordered as the times are.
const deadlineFormat = "2006-01-02T15:04:05.000000000Z07:00"

// environment returns the environment of a command. It does not contain credentials. leader is
// nil if it is not known.
func (r *runner) environment(role string, leader *place, l *leaderelection.Leadership, err error) []string {
	set := map[string]string{
		"ELECTOR_ROLE": role, "ELECTOR_TOKEN": "", "ELECTOR_DEADLINE": "", "ELECTOR_LEADER": "", "ELECTOR_LEADER_VALUE": "",
		"ELECTOR_ELECTION": r.election, "ELECTOR_INSTANCE_ID": r.instanceID, "ELECTOR_ERROR": "",
	}
	if leader != nil {
		set["ELECTOR_LEADER"], set["ELECTOR_LEADER_VALUE"] = leader.Name, leader.Value
	}
	if l != nil {
		set["ELECTOR_TOKEN"] = strconv.FormatInt(l.Token(), 10)
		if d := l.Deadline(); role == roleLeader && !d.IsZero() {
			set["ELECTOR_DEADLINE"] = d.UTC().Format(deadlineFormat)
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

// self returns what others see of this instance as the leader.
func (r *runner) self() *place { return &place{Name: r.instanceID, Value: r.value} }

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
	if !r.attempt.admit() {
		return r.attempt.gaveUp()
	}
	r.follower.lead()
	return r.shell(ctx, "begin", r.beginCommand, l, r.environment(roleLeader, r.self(), l, nil))
}

func (r *runner) end(ctx context.Context, l *leaderelection.Leadership) error {
	if r.attempt.gaveUp() != nil {
		return nil // begin has done nothing
	}
	role, leader := roleLeader, r.self()
	if l.Err() != nil {
		role, leader = roleFollower, nil
	}
	if err := r.shell(ctx, "end", r.endCommand, nil, r.environment(role, leader, l, nil)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.exit == nil { // otherwise this run ends
		r.follower.follow()
	}
	return nil
}

func (r *runner) failed(ctx context.Context, l *leaderelection.Leadership, err error) error {
	return r.shell(ctx, "error", r.errorCommand, nil, r.environment(roleError, nil, l, err))
}

// work runs the program until it ends, or ctx is done.
func (r *runner) work(ctx context.Context, l *leaderelection.Leadership) error {
	for {
		command := r.command(r.program, l, r.environment(roleLeader, r.self(), l, nil))
		command.Sweep = true
		if r.stdin {
			command.Stdin = os.Stdin
		}
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
