package changefeed

import (
	"context"
	"errors"
	"fmt"
)

// ErrMissed is the error of Next of [Changes] if its reader is more than 1000 changes behind, or
// if the server has dropped changes that the reader had not received. The program should then read
// the current data, and open another feed.
var ErrMissed = errors.New("changes were missed; read the current data and watch again")

// NoChanges implements [Store.Changes] by returning an error. A store embeds NoChanges if it can
// deliver the changes of its record only.
type NoChanges struct{}

// Changes returns an error that wraps [errors.ErrUnsupported].
func (NoChanges) Changes(_ context.Context, place string) (Changes, error) {
	return nil, fmt.Errorf("changefeed: changes of %q: %w", place, errors.ErrUnsupported)
}
