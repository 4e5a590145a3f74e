package counter

import (
	"bytes"
	"context"
	"fmt"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// decide finds out whether a write was applied that may have been applied in a session that is
// over. It returns nil if it was not and the state is still the old one, ErrChanged if it was not,
// and recipes.ErrUnconfirmed if this write or another one can have created the state.
func (v *Value[T]) decide(ctx context.Context, old snapshot, data []byte) error {
	seen, err := v.read(ctx, true)
	next := seen.version == old.version+1 && seen.czxid == old.czxid
	if old.Version == (Version{}) {
		next = seen.version == 0 && seen.Version != (Version{})
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, err)
	case seen.Version == old.Version:
		return nil
	case next && !bytes.Equal(seen.data, data):
		return ErrChanged
	}
	return fmt.Errorf("%w: the session expired, and the value is the one that was to be written", recipes.ErrUnconfirmed)
}
