package grant

import (
	"context"
	"log/slog"
	"time"
)

// Constructors of types of the root package, for package candidacy. Only implementations of Candidate need
// them, so the root package sets these variables instead of exporting functions.
var (
	// NewCandidacy returns a new candidacy.Candidacy.
	NewCandidacy func(ctx context.Context, log *slog.Logger) any
	// NewLeadership returns a new *leaderelection.Leadership and the function that ends it.
	NewLeadership func(token int64, deadline func() time.Time) (leadership any, end context.CancelCauseFunc)
)
