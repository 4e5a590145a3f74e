package group

import "github.com/go-leaderelection/leaderelection/internal/zk/recipe"

// Option is an option of a [Group] or a [Persistent]: every [recipes.Option], and
// [WithoutData] of a Group.
type Option interface{ ApplyGroup(*recipe.Setup) }

// ownOption is an option that this package defines, and not package recipes.
type ownOption func(*recipe.Setup)

func (o ownOption) ApplyGroup(s *recipe.Setup) { o(s) }

// settings contains what the options of a Group have set.
type settings struct{ namesOnly bool }

// WithoutData lets a [Group] read only the IDs of its members, for groups of thousands of members: it then sets
// one watch on the group and none on the members, and a change of members costs one request. The other fields
// of a [Member] are zero. A member that has left and rejoined between two reads is not noticed. The option has no
// effect on members that this Group joins, and is a [recipes.ErrInvalid] with [recipes.WithKazooLayout], in which
// the data is the ID.
func WithoutData() Option {
	return ownOption(recipe.Own("group.WithoutData", func(s *settings) { s.namesOnly = true }))
}
