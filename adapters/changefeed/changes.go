package changefeed

import (
	"context"
	"errors"
	"fmt"
)

// ErrMissed is returned by [Changes] whose reader was more than 1000 changes late, or whose
// server has dropped changes. Read the current data, and open another feed.
var ErrMissed = errors.New("changes were missed; read the current data and watch again")

// NoChanges implements [Store.Changes] for stores that embed it because they cannot deliver
// changes of other data.
type NoChanges struct{}

// Changes returns an error that wraps [errors.ErrUnsupported].
func (NoChanges) Changes(_ context.Context, place string) (Changes, error) {
	return nil, fmt.Errorf("changefeed: changes of %q: %w", place, errors.ErrUnsupported)
}
