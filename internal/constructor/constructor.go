// Package constructor gives package candidacy the constructors of types of the root package that only
// implementations of Candidate need. The root package sets the variables instead of exporting the
// functions, which users of elections do not call.
package constructor

import (
	"context"
	"log/slog"
	"time"
)

var (
	// Candidacy returns a new candidacy.Candidacy.
	Candidacy func(ctx context.Context, log *slog.Logger) any
	// Leadership returns a new *leaderelection.Leadership and the function that ends it.
	Leadership func(token int64, deadline func() time.Time) (leadership any, end context.CancelCauseFunc)
)
