package console

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/event"
)

// Candidate is a candidate whose role is set by the commands of a [Console]. It
// implements [leaderelection.Candidate].
type Candidate struct {
	console   *Console
	id        string
	candidacy candidacy.Candidacy
}

var _ leaderelection.Candidate = (*Candidate)(nil)

// Candidate creates a candidate. If several candidates have called ElectLeader, each line is
// received by only one of them.
func (c *Console) Candidate(id string) *Candidate {
	return &Candidate{console: c, id: id, candidacy: candidacy.New(context.Background(), nil)}
}

// ID implements [leaderelection.Candidate].
func (c *Candidate) ID() string { return c.candidacy.ID() }

// Status implements [leaderelection.Candidate].
func (c *Candidate) Status() <-chan leaderelection.Status { return c.candidacy.Status() }

// Current implements [leaderelection.Candidate].
func (c *Candidate) Current() leaderelection.Status { return c.candidacy.Current() }

// Events implements [leaderelection.Candidate].
func (c *Candidate) Events() <-chan event.Event { return c.candidacy.Events() }

// ElectLeader implements [leaderelection.Candidate]. The error is [ErrTyped] or
// [ErrEndOfInput], or nil after Resign.
func (c *Candidate) ElectLeader() error { return c.candidacy.Run(c.runCandidacy) }

// runCandidacy executes commands until one of them, or ctx, ends the candidacy, and returns the
// reason.
func (c *Candidate) runCandidacy(ctx context.Context) error {
	c.candidacy.Join(c.id)
	c.candidacy.Publish(leaderelection.Status{})
	c.console.startReader()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		select {
		case line := <-c.console.lines:
			if err := c.execute(line); err != nil {
				return err
			}
		case <-c.console.ended:
			return c.console.inputError()
		case <-c.console.closed:
			return c.console.inputError()
		case <-ctx.Done():
		}
	}
}

// execute executes the command in a line. Its error ends the candidacy.
func (c *Candidate) execute(line string) error {
	leading := c.candidacy.Leadership() != nil
	command, token := c.console.parseCommand(line, !leading)
	switch {
	case command == "LEADER" && !leading:
		c.candidacy.Lead(token, nil)
	case command == "NOTLEADER" && leading:
		c.candidacy.Revoke(ErrNotLeaderTyped)
		c.candidacy.Publish(leaderelection.Status{})
	case command == "ERROR":
		return ErrTyped
	}
	return nil
}

// Resign implements [leaderelection.Candidate]. It returns nil when the candidacy is over.
func (c *Candidate) Resign() error {
	c.candidacy.Stop(leaderelection.ErrResigned)
	<-c.candidacy.Done()
	return nil
}

// EndElection returns an error that wraps [errors.ErrUnsupported] and changes nothing,
// because a console does not know the other candidates.
func (c *Candidate) EndElection() error {
	return fmt.Errorf("console: end election: %w", errors.ErrUnsupported)
}
