package recipe

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// ErrFormat is the error that package recipes exports as recipes.ErrFormat.
var ErrFormat = errors.New("recipes: data has another format: use the format of the program that has written the data, or replace the data with Set")

// EncodeValue returns data for a value. The data does not share memory with the value. encode is the method of a
// recipes.Codec. The error wraps connection.ErrInvalid and the error of encode.
func EncodeValue[T any](encode func(T) ([]byte, error), value T) ([]byte, error) {
	if encode == nil {
		return nil, fmt.Errorf("%w: the codec has no function Encode", connection.ErrInvalid)
	}
	data, err := encode(value)
	if err != nil {
		return nil, fmt.Errorf("%w: the value cannot be encoded: %w", connection.ErrInvalid, err)
	}
	return bytes.Clone(data), nil
}

// DecodeValue returns the value of data. The value does not share memory with data. decode is the method of a
// recipes.Codec. The error wraps ErrFormat and the error of decode.
func DecodeValue[T any](decode func([]byte) (T, error), data []byte) (value T, err error) {
	if decode == nil {
		return value, fmt.Errorf("%w: the codec has no function Decode", connection.ErrInvalid)
	}
	if value, err = decode(bytes.Clone(data)); err != nil {
		err = fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return value, err
}
