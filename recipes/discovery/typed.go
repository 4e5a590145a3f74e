package discovery

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// Typed is a view of the services of a [Discovery] whose instances have payloads of one type. Create it with [Of]. Its
// methods may be called from any goroutine.
type Typed[T any] struct {
	discovery *Discovery
	codec     recipes.Codec[T]
}

// Of returns a view of d whose instances have payloads that c converts from and to JSON, for instance
// [recipes.JSONCodec]. d remains usable: its methods and its providers deliver every instance, whatever its
// payload is, and [Typed.Value] returns the payload.
func Of[T any](d *Discovery, c recipes.Codec[T]) Typed[T] { return Typed[T]{d, c} }

// Register registers the instance i with the given payload, which replaces the payload of i. If the payload cannot
// be encoded, the error wraps [recipes.ErrInvalid] and the error of the codec. Other errors are those of
// [Discovery.Register].
func (t Typed[T]) Register(ctx context.Context, i Instance, payload T) (*Registration, error) {
	var err error
	if i.Payload, err = t.encode(i, payload); err != nil {
		return nil, err
	}
	return t.discovery.Register(ctx, i)
}

// Update replaces the registered instance and its payload. If the payload cannot be encoded, the error wraps
// [recipes.ErrInvalid] and the error of the codec. Other errors are those of [Registration.Update].
func (t Typed[T]) Update(ctx context.Context, r *Registration, i Instance, payload T) error {
	var err error
	if i.Payload, err = t.encode(i, payload); err != nil {
		return err
	}
	return r.Update(ctx, i)
}

// Value returns the payload of an instance. Without a payload, which is null in the JSON of the instance, the result
// is what the codec makes of null: with [recipes.JSONCodec] the zero value. The error wraps [recipes.ErrFormat].
func (t Typed[T]) Value(i Instance) (T, error) {
	data := []byte(i.Payload)
	if data == nil {
		data = []byte("null")
	}
	value, err := recipe.DecodeValue(t.codec.Decode, data)
	if err != nil {
		err = fmt.Errorf("payload of instance %q of %q: %w", i.ID, i.Name, err)
	}
	return value, err
}

func (t Typed[T]) encode(i Instance, payload T) (json.RawMessage, error) {
	data, err := recipe.EncodeValue(t.codec.Encode, payload)
	if err != nil {
		err = fmt.Errorf("payload of instance %q of %q: %w", i.ID, i.Name, err)
	}
	return data, err
}
