package zktest

import (
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// The options of this file make the server behave like ClickHouse Keeper, which implements
// ZooKeeper's protocol except for some parts. A test combines the options that it needs. All of
// them together are
//
//	zktest.WithoutReattach(), zktest.WithContainerOwner(math.MinInt64),
//	zktest.WithoutOps(zktest.OpSetWatches, zktest.OpSetWatches2, zktest.OpCreateContainer)

// keeper contains the settings of the options that imitate ClickHouse Keeper.
type keeper struct {
	unknown        []Op
	noReattach     bool
	containerOwner int64
}

// WithoutOps makes the server close the connection of a client that sends one of these
// operations, alone or in a multi, without an answer. ClickHouse Keeper does so with
// [OpSetWatches] before release 26.1 and with [OpCreateContainer] before release 26.7. In
// the request log, such a request has the code "unimplemented".
func WithoutOps(ops ...Op) Option {
	return optionFunc(func(c *config) { c.keeper.unknown = append(c.keeper.unknown, ops...) })
}

// WithoutReattach makes every handshake start a new session, even if the client requests
// its existing session. The client is not notified, except by the session ID in the
// answer. The old session and its ephemeral nodes remain until its timeout has passed.
// ClickHouse Keeper does so in all releases up to 26.9.
func WithoutReattach() Option { return optionFunc(func(c *config) { c.keeper.noReattach = true }) }

// WithContainerOwner sets the ephemeralOwner in the Stat of a container. The default is
// 0, as in Apache ZooKeeper; ClickHouse Keeper returns [math.MinInt64].
func WithContainerOwner(owner int64) Option {
	return optionFunc(func(c *config) { c.keeper.containerOwner = owner })
}

// implements reports whether the server implements the operations of r.
func (k *keeper) implements(r *wire.Request) bool {
	if len(k.unknown) == 0 {
		return true
	}
	return !slices.Contains(k.unknown, r.Op) &&
		!slices.ContainsFunc(r.Ops, func(o wire.Request) bool { return slices.Contains(k.unknown, o.Op) })
}
