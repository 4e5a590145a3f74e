package migration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/go-leaderelection/leaderelection"
)

// NewCandidateFunc creates a candidate of one of the two elections, without starting it. It is called again
// after that candidate has resigned. It may wait for its backend, and must return soon after ctx is done.
// The candidate may be bound to ctx, which is cancelled when the candidate has resigned. If the candidate
// has a method Close, it is called after the resignation. EndElection may call the function of the new
// election at the same time as ElectLeader.
type NewCandidateFunc func(ctx context.Context) (leaderelection.Candidate, error)

// side is a candidate of one of the two elections. Only the goroutine of ElectLeader uses the field status.
type side struct {
	name      string // "old" or "new"
	candidate leaderelection.Candidate
	cancel    context.CancelFunc // cancels the context of NewCandidateFunc
	leave     func() error       // calls leaveOnce in its first call, and returns its result in all calls
	called    atomic.Bool        // resign was called
	failed    atomic.Bool        // the last resignation is not confirmed

	started   bool            // start was called
	result    chan error      // receives the result of ElectLeader
	requested <-chan struct{} // closed when the candidate is requested to resign; nil before listen, or if the candidate receives no requests
	err       error           // the result of ElectLeader, nil after a resignation; set by leave

	status leaderelection.Status
}

// ErrNewElection is wrapped by the errors of the new election: of its NewCandidateFunc and of its
// candidates. The text of an error also names the election.
var ErrNewElection = errors.New("migration: error of the new election")

// electionError is an error of one of the two elections.
type electionError struct {
	name string // "old" or "new"
	err  error
}

func (e *electionError) Error() string {
	return fmt.Sprintf("migration: %s election: %v", e.name, e.err)
}

func (e *electionError) Unwrap() error { return e.err }

func (e *electionError) Is(target error) bool { return target == ErrNewElection && e.name == "new" }

var errNoCandidate = fmt.Errorf("%w: NewCandidateFunc returned no candidate", leaderelection.ErrInvalid)

// newSide creates a candidate. ctx limits only the time of the creation.
func newSide(ctx context.Context, name string, create NewCandidateFunc) (*side, error) {
	bound, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(ctx, cancel)
	candidate, err := create(bound)
	if err == nil && candidate == nil {
		err = errNoCandidate
	}
	if err != nil {
		unlink()
		cancel()
		return nil, &electionError{name, err}
	}
	s := &side{name: name, candidate: candidate, cancel: cancel, result: make(chan error, 1)}
	s.leave = sync.OnceValue(s.leaveOnce)
	if !unlink() { // ctx is done, and its end has cancelled the context of the candidate
		return nil, errors.Join(s.describe(context.Cause(ctx)), s.resign())
	}
	return s, nil
}

// start starts the candidacy.
func (s *side) start() {
	s.started = true
	go func() { s.result <- s.candidate.ElectLeader() }()
}

// resign resigns from the election, and returns the error of the resignation. Later calls ask the backend
// again whether the resignation is confirmed, unless the candidate was closed.
func (s *side) resign() error {
	again := s.called.Swap(true)
	err := s.leave()
	if _, closes := s.candidate.(io.Closer); again && err != nil && !closes {
		err = s.describe(s.candidate.Resign())
	}
	s.failed.Store(err != nil)
	return err
}

func (s *side) isUnconfirmed() bool { return s.failed.Load() }

// leaveOnce resigns, waits until ElectLeader has returned, and closes the candidate. If the backend does
// not confirm the resignation, leaveOnce waits and closes the candidate in the background, because Resign
// must not block longer.
func (s *side) leaveOnce() error {
	err := s.candidate.Resign()
	switch {
	case !s.started:
	case err != nil:
		go func() {
			<-s.result
			_ = s.close()
		}()
		return s.describe(err)
	default:
		s.err = <-s.result
	}
	return s.describe(errors.Join(err, s.close()))
}

// close releases the resources of the candidate after its candidacy.
func (s *side) close() error {
	s.cancel()
	if c, ok := s.candidate.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// endError returns the error that ended the candidacy before it resigned, or nil. It may be called only after leave.
func (s *side) endError() error {
	if s == nil {
		return nil
	}
	return s.describe(s.err)
}

// describe adds the name of the election to an error.
func (s *side) describe(err error) error {
	if err == nil {
		return nil
	}
	return &electionError{s.name, err}
}

// The following methods accept a nil side, because the side of the new election is nil until the candidate
// leads the old election.

// listen makes requestChannel return a channel if the candidate receives requests to resign.
func (s *side) listen() {
	if s == nil {
		return
	}
	if c, ok := s.candidate.(interface{ ResignRequested() <-chan struct{} }); ok {
		s.requested = c.ResignRequested()
	}
}

// statusChannel returns the channel of statuses of the candidate, or nil.
func (s *side) statusChannel() <-chan leaderelection.Status {
	if s == nil {
		return nil
	}
	return s.candidate.Status()
}

// currentRole returns the role in the newest status, or Follower if there is no candidate on this side.
func (s *side) currentRole() leaderelection.Role {
	if s == nil {
		return leaderelection.Follower
	}
	return s.status.Role
}

// leadershipDone returns a channel that is closed when the current leadership is over, or nil.
func (s *side) leadershipDone() <-chan struct{} {
	if s == nil || s.status.Leadership == nil {
		return nil
	}
	return s.status.Leadership.Done()
}

// requestChannel returns a channel that is closed when the candidate is requested to resign, or nil.
func (s *side) requestChannel() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.requested
}
