package queue

import (
	"context"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Typed is a view of a queue whose items contain values of one type. Create it with [Of]. Its methods may be called
// from any goroutine.
type Typed[T any] struct {
	queue *Queue
	codec recipes.Codec[T]
}

// Of returns a view of q whose items contain values that c converts. q remains usable, and must be closed.
func Of[T any](q *Queue, c recipes.Codec[T]) Typed[T] { return Typed[T]{q, c} }

// Put appends an item that contains value, and returns its ID. Errors are those of [Queue.Put]; the error wraps
// [recipes.ErrInvalid] and the error of the codec if the value cannot be encoded.
func (t Typed[T]) Put(ctx context.Context, value T, opts ...PutOption) (id string, err error) {
	data, err := recipe.EncodeValue(t.codec.Encode, value)
	if err != nil {
		return "", t.queue.wrapError("put into", err)
	}
	return t.queue.Put(ctx, data, opts...)
}

// Value returns the value of an item. The error wraps [recipes.ErrFormat].
func (t Typed[T]) Value(i *Item) (T, error) {
	value, err := recipe.DecodeValue(t.codec.Decode, i.Data())
	return value, t.queue.wrapError("read item "+i.ID()+" of", err)
}

// Handle is [Queue.Handle] with the value of each item. An item whose data cannot be decoded becomes a dead
// letter, with the error as its reason, and f is not called.
func (t Typed[T]) Handle(ctx context.Context, f func(ctx context.Context, value T, i *Item) error, opts ...HandleOption) error {
	return t.queue.Handle(ctx, func(ctx context.Context, i *Item) error {
		value, err := t.Value(i)
		if err != nil {
			return Reject(err)
		}
		return f(ctx, value, i)
	}, opts...)
}
