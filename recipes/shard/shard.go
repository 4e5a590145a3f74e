package shard

import (
	"fmt"
	"sync/atomic"

	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

// Shard is a shard that this member owns: it holds the lock of the shard. The methods Token, Done,
// Deadline, Context, Multi and Release are those of the hold of the lock. Its methods may be called
// from any goroutine.
type Shard struct {
	*lock.Hold
	name      string
	reason    Reason
	requested chan struct{}
	move      *MovedError // the reason of the request; set before requested is closed
	delivered atomic.Bool // reports that the user has received the shard from the channel of Owned
	revoked   atomic.Bool
}

// Name returns the name of the shard.
func (s *Shard) Name() string { return s.name }

// Reason returns why this member has got the shard, or "" if it has had it before according to the
// plan: after a restart, or because the lock was lost in between.
func (s *Shard) Reason() Reason { return s.reason }

// ReleaseRequested returns a channel that is closed when the shard should be released: the plan gives
// it to another member or to none, or this member leaves. Then the program should finish its work on
// the shard, and call Release. Otherwise the shard is released when the grace period is over. The
// channel is not closed when the shard is lost.
func (s *Shard) ReleaseRequested() <-chan struct{} { return s.requested }

// Moved returns why the release was requested, or nil if it was not.
func (s *Shard) Moved() *MovedError {
	select {
	case <-s.requested:
		return s.move
	default:
		return nil
	}
}

// Err returns nil while the shard is held, and afterwards the reason why it is not: [ErrRevoked] if it was not
// released in time, or the error of [lock.Hold.Err].
func (s *Shard) Err() error {
	err := s.Hold.Err()
	if err != nil && s.revoked.Load() {
		return fmt.Errorf("%w: %w", ErrRevoked, err)
	}
	return err
}
