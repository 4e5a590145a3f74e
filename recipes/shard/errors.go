package shard

import (
	"errors"
	"fmt"
)

// ErrRevoked is the reason why a member does not hold a shard any more if the program has not released the shard
// within the grace period after the request to release it.
var ErrRevoked = errors.New("shard: not released within the grace period")

// MovedError is the cause of the context of a function of [Group.Run] if the release of its shard is
// requested. The shard is still held then.
type MovedError struct {
	Shard string
	// To is the next owner according to the plan, or "" if the shard has no new owner yet.
	To     string
	Reason Reason
}

func (e *MovedError) Error() string {
	if e.To == "" {
		return fmt.Sprintf("shard: %q must be released: %s", e.Shard, e.Reason)
	}
	return fmt.Sprintf("shard: %q must be released for %s: %s", e.Shard, e.To, e.Reason)
}
