package electionprom

import (
	"errors"

	"github.com/go-leaderelection/leaderelection"
)

// reasons are the values of the label reason: there are no others but the last, so
// that no error's text makes a time series of its own.
var reasons = []struct {
	err   error
	label string
}{
	{leaderelection.ErrResigned, "resigned"},
	{leaderelection.ErrElectionOver, "election_over"},
	{leaderelection.ErrSessionExpired, "session_expired"},
	{leaderelection.ErrCandidateDeleted, "candidate_deleted"},
	{leaderelection.ErrConnClosed, "connection_closed"},
	{leaderelection.ErrUnreachable, "unreachable"},
	{leaderelection.ErrPermission, "permission"},
	{leaderelection.ErrNodeExhausted, "node_exhausted"},
}

const otherReason = "other"

func reason(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.label
		}
	}
	return otherReason
}
