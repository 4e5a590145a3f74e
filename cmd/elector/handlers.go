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

// The values of the variable ELECTOR_ROLE.
const (
	roleLeader   = "leader"
	roleFollower = "follower" // the role for the end command if the leadership was lost
	roleError    = "error"
)

// deadlineFormat is RFC 3339 with nine digits of nanoseconds, so that texts in UTC have the same order as
// the times.
const deadlineFormat = "2006-01-02T15:04:05.000000000Z07:00"

// handlerEnvironment returns the environment for a command or the program. The environment does not contain elector's
// credentials. leader is nil if the leader is unknown.
func (r *runCommand) handlerEnvironment(role string, leader *candidateInfo, l *leaderelection.Leadership, err error) []string {
	variables := map[string]string{
		"ELECTOR_ROLE": role, "ELECTOR_TOKEN": "", "ELECTOR_ALSO_TOKEN": "", "ELECTOR_DEADLINE": "", "ELECTOR_LEADER": "", "ELECTOR_LEADER_VALUE": "",
		"ELECTOR_ELECTION": r.settings.election, "ELECTOR_INSTANCE_ID": r.settings.instanceID, "ELECTOR_ERROR": "",
	}
	if leader != nil {
		variables["ELECTOR_LEADER"], variables["ELECTOR_LEADER_VALUE"] = leader.Name, leader.Value
	}
	if l != nil {
		variables["ELECTOR_TOKEN"] = strconv.FormatInt(l.Token(), 10)
		if token, known := r.also.token(l); known {
			variables["ELECTOR_ALSO_TOKEN"] = strconv.FormatInt(token, 10)
		}
		if d := l.Deadline(); role == roleLeader && !d.IsZero() {
			variables["ELECTOR_DEADLINE"] = d.UTC().Format(deadlineFormat)
		}
	}
	if err != nil {
		variables["ELECTOR_ERROR"] = err.Error()
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		_, replaced := variables[name]
		return replaced || slices.Contains(credentials, name)
	})
	for name, value := range variables {
		fitted := fitVariable(value)
		if fitted != value {
			r.reportVariable(name, value)
		}
		env = append(env, name+"="+fitted)
	}
	return env
}

// maxVariable is the maximum length, in bytes, of an environment variable that elector sets.
const maxVariable = 4096

// fitVariable returns the part of a text that an environment variable can contain. Another program may have written
// the text. The part ends before the first null character, contains U+FFFD instead of bytes that are not UTF-8, and
// has at most maxVariable bytes. No command could be started with other texts.
func fitVariable(text string) string {
	text, _, _ = strings.Cut(text, "\x00")
	text = strings.ToValidUTF8(text, "\ufffd")
	if len(text) <= maxVariable {
		return text
	}
	return strings.ToValidUTF8(text[:maxVariable], "") // the text may end with a part of a character
}

// reportVariable logs, once for each text, that a variable does not contain the complete text.
func (r *runCommand) reportVariable(name, text string) {
	r.mu.Lock()
	last, found := r.reported[name]
	if r.reported == nil {
		r.reported = map[string]string{}
	}
	r.reported[name] = text
	r.mu.Unlock()
	if !found || last != text {
		r.settings.log.Warn("a variable contains only a part of its text: the text has a null character, is not UTF-8, or is longer than the limit",
			"variable", name, "bytes", len(text), "limit", maxVariable)
	}
}

// ownInfo returns the candidateInfo of this instance, as other instances see it while this instance leads.
func (r *runCommand) ownInfo() *candidateInfo {
	return &candidateInfo{Name: r.settings.instanceID, Value: r.settings.value}
}

// childCommand returns a command for package child. If l is not nil, the command is stopped when the lease
// of l expires.
func (r *runCommand) childCommand(args []string, l *leaderelection.Leadership, env []string) child.Command {
	c := child.Command{
		Args: args, Env: env, Stdout: os.Stdout, Stderr: os.Stderr,
		Grace: r.grace, LostGrace: r.allowedLostGrace(),
	}
	if l != nil {
		c.Lease = l.Deadline
	}
	return c
}

// runScript runs a shell command, unless script is empty. While this process exits, runScript starts nothing, and
// only waits until ctx is done. If no program reads the log, this process exits a second after the signal; if
// elector's program exits in that second, no command may start.
func (r *runCommand) runScript(ctx context.Context, name, script string, l *leaderelection.Leadership, env []string) error {
	if script == "" {
		return nil
	}
	if r.exiting.Load() {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	r.settings.log.Info("running command", "command", name)
	if err := child.Run(ctx, r.childCommand(child.Shell(script), l, env)); err != nil {
		return fmt.Errorf("%s command: %w", name, err)
	}
	return nil
}

// handleBegin runs the begin command when this instance has become the leader.
func (r *runCommand) handleBegin(ctx context.Context, l *leaderelection.Leadership) error {
	if err := r.attempt.markSucceeded(); err != nil {
		return err
	}
	r.follower.beginLeadership()
	return r.runScript(ctx, "begin", r.beginCommand, l, r.handlerEnvironment(roleLeader, r.ownInfo(), l, nil))
}

// handleEnd runs the end command when the leadership has ended or must end. It does nothing if the begin command has
// not run.
func (r *runCommand) handleEnd(ctx context.Context, l *leaderelection.Leadership) error {
	if r.attempt.failure() != nil {
		return nil // there is nothing to end, because the begin command did not run
	}
	role, leader := roleLeader, r.ownInfo()
	if l.Err() != nil {
		role, leader = roleFollower, nil
	}
	if err := r.runScript(ctx, "end", r.endCommand, nil, r.handlerEnvironment(role, leader, l, nil)); err != nil {
		return err
	}
	if _, exited := r.program.exitCode(); !exited { // otherwise this process exits, and does not follow again
		r.follower.endLeadership()
	}
	return nil
}

// handleError runs the error command after err. The Elector continues afterwards.
func (r *runCommand) handleError(ctx context.Context, l *leaderelection.Leadership, err error) error {
	return r.runScript(ctx, "error", r.errorCommand, nil, r.handlerEnvironment(roleError, nil, l, err))
}

// handleWork runs the program until the program exits or ctx is done. It is the handler Work of the Elector.
func (r *runCommand) handleWork(ctx context.Context, l *leaderelection.Leadership) error {
	for {
		command := r.childCommand(r.program.args, l, r.handlerEnvironment(roleLeader, r.ownInfo(), l, nil))
		command.Sweep = true
		if r.stdin {
			command.Stdin = os.Stdin
		}
		r.settings.log.Info("starting program", "program", r.program.args[0], "token", l.Token())
		process, err := r.program.startProcess(command)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			process.Stop()
		case <-process.Done():
		}
		exit := r.program.waitProcess(process)
		log := r.settings.log.With("code", exit.Code)
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
			// The watchdog has stopped the program, because it did not receive the new deadline of the
			// lease in time.
			if l.Err() != nil {
				return l.Err()
			}
			continue
		}
		r.program.setExitCode(exit.Code)
		return nil
	}
}
