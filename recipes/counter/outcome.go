package counter

import (
	"bytes"
	"context"
	"fmt"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// written completes what is known of a write that was carried out without its
// response being seen.
func (v *Value[T]) written(ctx context.Context, old snapshot, data []byte) (snapshot, error) {
	seen, err := v.read(ctx, true)
	if err != nil {
		return snapshot{}, fmt.Errorf("%w: %w", recipes.ErrUnconfirmed, err)
	}
	made := snapshot{Version{old.czxid, 0, old.version + 1}, data}
	if old.Version == (Version{}) {
		made.Version = Version{seen.czxid, seen.czxid, 0}
	}
	if seen.czxid == made.czxid && seen.version == made.version {
		made.Version = seen.Version // nobody has written since
	}
	return made, nil
}

// decide finds out whether a write that may have been carried out in a session that
// is over was. It returns nil where it was not and the state is still the old one,
// ErrChanged where it was not, and recipes.ErrUnconfirmed where the state can be its
// work or somebody else's.
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
