package shard

import (
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Option is an option of a [Group]: [WithGrace], [WithZone], [WithWeight], [WithRestart], which concern the
// members that join by this Group, and every [recipes.Option].
type Option interface{ ApplyShard(*recipe.Setup) }

// ownOption is an option that this package defines, and not package recipes.
type ownOption func(*recipe.Setup)

func (o ownOption) ApplyShard(s *recipe.Setup) { o(s) }

// settings are the options of this package.
type settings struct {
	grace   time.Duration
	zone    string
	weight  int
	restart bool
}

// WithGrace sets how long a member may keep a shard after its release was requested. Then the shard is
// released. The default is 10 s. With 0 shards are released immediately.
func WithGrace(d time.Duration) Option {
	return ownOption(recipe.Own("shard.WithGrace", func(s *settings) { s.grace = d }))
}

// WithZone sets the zone of the member, such as the name of a data center. The shares of the members
// are rounded so that those of each zone together are even as well. Without the option all members are
// in one zone.
func WithZone(zone string) Option {
	return ownOption(recipe.Own("shard.WithZone", func(s *settings) { s.zone = zone }))
}

// WithWeight sets the weight of the member, from 1, which is the default, to 1,000,000. A member with
// weight 2 has twice as many shards as a member with weight 1.
func WithWeight(n int) Option {
	return ownOption(recipe.Own("shard.WithWeight", func(s *settings) { s.weight = n }))
}

// WithRestart declares that a member that leaves will return with the same ID, for example because the
// program is updated. If it returns within [Spec.RestartDelay], it has the same shards again. Until then they
// have no owner.
func WithRestart() Option {
	return ownOption(recipe.Own("shard.WithRestart", func(s *settings) { s.restart = true }))
}

// validate returns an ErrInvalid if an option has an invalid argument.
func (s *settings) validate() error {
	switch {
	case s.grace < 0:
		return fmt.Errorf("%w: shard.WithGrace(%v): must not be negative", recipes.ErrInvalid, s.grace)
	case s.weight < 1 || s.weight > maxWeight:
		return fmt.Errorf("%w: shard.WithWeight(%d): must be between 1 and %d", recipes.ErrInvalid, s.weight, maxWeight)
	case len(s.zone) > maxZone:
		return fmt.Errorf("%w: shard.WithZone: %d bytes exceed the limit of %d", recipes.ErrInvalid, len(s.zone), maxZone)
	}
	return nil
}

// maxZone is the maximum length of a zone in bytes. The plan contains the zone of every member.
const maxZone = 256
