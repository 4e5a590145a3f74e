package recipe

import (
	"bytes"
	"fmt"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes/codec"
)

// EncodeValue returns data for a value, which does not share memory with it. The error wraps
// connection.ErrInvalid and that of the codec.
func EncodeValue[T any](c codec.Codec[T], value T) ([]byte, error) {
	if c.Encode == nil {
		return nil, fmt.Errorf("%w: the codec has no function Encode", connection.ErrInvalid)
	}
	data, err := c.Encode(value)
	if err != nil {
		return nil, fmt.Errorf("%w: the value cannot be encoded: %w", connection.ErrInvalid, err)
	}
	return bytes.Clone(data), nil
}

// DecodeValue returns the value of data, which does not share memory with it. The error wraps
// codec.ErrFormat and that of the codec.
func DecodeValue[T any](c codec.Codec[T], data []byte) (value T, err error) {
	if c.Decode == nil {
		return value, fmt.Errorf("%w: the codec has no function Decode", connection.ErrInvalid)
	}
	if value, err = c.Decode(bytes.Clone(data)); err != nil {
		err = fmt.Errorf("%w: %w", codec.ErrFormat, err)
	}
	return value, err
}
