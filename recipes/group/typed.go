package group

import (
	"context"
	"fmt"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Typed is a view of a group whose members have values of one type as their data. Create it with [Of]. Its methods may
// be called from any goroutine.
type Typed[T any] struct {
	group *Group
	codec recipes.Codec[T]
}

// Of returns a view of g whose members have values that c converts. g remains usable: [Group.Members] and
// [Group.Watch] deliver every member, whatever its data is, and [Typed.Value] returns its value.
func Of[T any](g *Group, c recipes.Codec[T]) Typed[T] { return Typed[T]{g, c} }

// Join joins the group as member id with a value. If the value cannot be encoded, the error wraps
// [recipes.ErrInvalid] and the error of the codec. Other errors are those of [Group.Join].
func (t Typed[T]) Join(ctx context.Context, id string, value T) (*Membership, error) {
	data, err := recipe.EncodeValue(t.codec.Encode, value)
	if err != nil {
		return nil, t.group.setup.Fail("join", t.group.setup.Path, err)
	}
	return t.group.Join(ctx, id, data)
}

// Set changes the value of a member of this process. If the value cannot be encoded, the error wraps
// [recipes.ErrInvalid] and the error of the codec. Other errors are those of [Membership.Set].
func (t Typed[T]) Set(ctx context.Context, m *Membership, value T) error {
	data, err := recipe.EncodeValue(t.codec.Encode, value)
	if err != nil {
		return m.setup.Fail("set", m.path, err)
	}
	return m.Set(ctx, data)
}

// Value returns the value of a member. The error wraps [recipes.ErrFormat], or [Member.Err] if the data
// could not be read, or [recipes.ErrInvalid] if the group is [WithoutData].
func (t Typed[T]) Value(m Member) (value T, err error) {
	switch {
	case m.Err != nil:
		err = m.Err
	case t.group.namesOnly:
		err = fmt.Errorf("%w: the group was created with WithoutData, so it has no values", recipes.ErrInvalid)
	default:
		value, err = recipe.DecodeValue(t.codec.Decode, m.Data)
	}
	if err != nil {
		err = fmt.Errorf("value of member %q of %s: %w", m.ID, t.group.setup.Path, err)
	}
	return value, err
}
