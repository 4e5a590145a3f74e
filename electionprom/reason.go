package electionprom

import (
	"errors"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/shard"
)

// reasons maps errors to values of the label reason. All other errors have the value otherReason, which
// limits the number of time series.
var reasons = []struct {
	err   error
	label string
}{
	{leaderelection.ErrResigned, "resigned"},
	{leaderelection.ErrElectionOver, "election_over"},
	{leaderelection.ErrSessionExpired, "session_expired"},
	{leaderelection.ErrDeleted, "candidate_deleted"},
	{leaderelection.ErrConnClosed, "connection_closed"},
	{leaderelection.ErrUnreachable, "unreachable"},
	{leaderelection.ErrPermission, "permission"},
	{leaderelection.ErrNodeExhausted, "node_exhausted"},
}

const otherReason = "other"

// reason returns the value of the label reason for an error.
func reason(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.label
		}
	}
	return otherReason
}

// recipeReason returns the value of the label reason for the loss of a hold, a shard or a znode of a recipe.
func recipeReason(err error) string {
	switch {
	case errors.Is(err, shard.ErrRevoked):
		return "revoked"
	case errors.Is(err, recipes.ErrLeaseExpired):
		return "lease_expired"
	case errors.Is(err, recipes.ErrDeleted):
		return "deleted"
	}
	return reason(err)
}
