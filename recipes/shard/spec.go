package shard

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// Spec is what operators decide about a group. [Group.Update] changes it. The zero Spec has no shards.
type Spec struct {
	// Shards are the names of the shards. A name can be any non-empty text whose lock has a path that
	// is not too long (4 KiB, escaped). Update sorts them and removes duplicates.
	Shards []string `json:"shards,omitempty"`
	// Paused are shards that no member owns. Names that are not in Shards have no effect.
	Paused []string `json:"paused,omitempty"`
	// Drained are members that hand over their shards and get none.
	Drained []string `json:"drained,omitempty"`
	// PauseRebalancing stops moves of shards from members that are alive: moves for the balance, because of a
	// drain and because of a pin. The leader still assigns shards that have no owner.
	PauseRebalancing bool `json:"pauseRebalancing,omitempty"`
	// MaxMoves is the maximum number of moves of shards from members that are alive that are in progress at a time;
	// 0 means no limit. It does not delay moves from a member that leaves or is gone.
	MaxMoves int `json:"maxMoves,omitempty"`
	// RestartDelay is how long a member that has announced a restart keeps its shards ([WithRestart]). The shards
	// have no owner during that time. 0 means that they are assigned to others immediately.
	RestartDelay time.Duration `json:"restartDelayNanoseconds,omitempty"`
	// Pins are the members, by shard, that own a shard whenever they have joined and are not
	// drained. At other times the shard is placed like every other.
	Pins map[string]string `json:"pins,omitempty"`
	// Priorities are numbers by shard; the default is 0. If MaxMoves limits the moves, shards with
	// greater numbers move first to pinned members and from drained members, and last for the balance.
	Priorities map[string]int `json:"priorities,omitempty"`
}

// maxSpecSize is the maximum size of a Spec. Each shard counts placeSize bytes in addition, for its owner in
// the plan, so that the plan fits into a znode.
const maxSpecSize, placeSize = 896 << 10, 16

// normalize sorts the shards and removes duplicates. It returns recipes.ErrInvalid if the Spec is not valid.
func (s *Spec) normalize() error {
	s.Shards = slices.Clone(s.Shards)
	slices.Sort(s.Shards)
	s.Shards = slices.Compact(s.Shards)
	text, err := json.Marshal(s)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", recipes.ErrInvalid, err)
	case len(s.Shards) > 0 && s.Shards[0] == "":
		return fmt.Errorf("%w: the name of a shard is empty", recipes.ErrInvalid)
	case !s.isText():
		return fmt.Errorf("%w: the name of a shard or a member is not valid UTF-8", recipes.ErrInvalid)
	case s.MaxMoves < 0 || s.RestartDelay < 0:
		return fmt.Errorf("%w: MaxMoves %d and RestartDelay %v must not be negative", recipes.ErrInvalid, s.MaxMoves, s.RestartDelay)
	case len(text)+placeSize*len(s.Shards) > maxSpecSize:
		return fmt.Errorf("%w: %d shards with %d bytes: the limit is %d bytes with %d for each shard; use several groups, or shorter names",
			recipes.ErrInvalid, len(s.Shards), len(text), maxSpecSize, placeSize)
	}
	return nil
}

// isText reports whether all names are valid UTF-8. JSON would replace other bytes.
func (s *Spec) isText() bool {
	for _, names := range []iter.Seq[string]{
		slices.Values(s.Shards), slices.Values(s.Paused), slices.Values(s.Drained),
		maps.Keys(s.Pins), maps.Values(s.Pins), maps.Keys(s.Priorities),
	} {
		for name := range names {
			if !utf8.ValidString(name) {
				return false
			}
		}
	}
	return true
}
