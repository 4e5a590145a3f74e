package counter

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Codec converts values to the data of a znode and back. Its functions may be called from
// any goroutine. Values may share memory with the slices that Encode returns and Decode receives:
// this package copies them. Decode is not called if the znode does not exist.
type Codec[T any] struct {
	// Encode returns the data for a value.
	Encode func(T) ([]byte, error)
	// Decode returns the value for data. Its errors are wrapped by [ErrFormat].
	Decode func([]byte) (T, error)
}

// JSON returns a codec that uses encoding/json.
func JSON[T any]() Codec[T] {
	return Codec[T]{
		Encode: func(v T) ([]byte, error) { return json.Marshal(v) },
		Decode: func(data []byte) (v T, err error) {
			err = json.Unmarshal(data, &v)
			return v, err
		},
	}
}

// long is the format of Curator's DistributedAtomicLong: 8 bytes. Empty data is 0.
var long = Codec[int64]{
	Encode: func(n int64) ([]byte, error) { return binary.BigEndian.AppendUint64(nil, uint64(n)), nil },
	Decode: func(data []byte) (int64, error) {
		switch len(data) {
		case 0:
			return 0, nil
		case 8:
			return int64(binary.BigEndian.Uint64(data)), nil
		}
		return 0, fmt.Errorf("%d bytes, want 8", len(data))
	},
}

// integer is the format of Curator's SharedCount and DistributedAtomicInteger: 4 bytes. Empty
// data is 0.
var integer = Codec[int64]{
	Encode: func(n int64) ([]byte, error) {
		if n != int64(int32(n)) {
			return nil, fmt.Errorf("%w: %d does not fit into 32 bits", ErrOverflow, n)
		}
		return binary.BigEndian.AppendUint32(nil, uint32(n)), nil
	},
	Decode: func(data []byte) (int64, error) {
		switch len(data) {
		case 0:
			return 0, nil
		case 4:
			return int64(int32(binary.BigEndian.Uint32(data))), nil
		}
		return 0, fmt.Errorf("%d bytes, want 4", len(data))
	},
}

// decimal is the format of kazoo's Counter with its default, integers. Empty data is 0.
var decimal = Codec[int64]{
	Encode: func(n int64) ([]byte, error) { return strconv.AppendInt(nil, n, 10), nil },
	Decode: func(data []byte) (int64, error) {
		if len(data) == 0 {
			return 0, nil
		}
		return strconv.ParseInt(string(data), 10, 64)
	},
}

// add returns a+b, or ErrOverflow.
func add(a, b int64) (int64, error) {
	if b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b {
		return 0, fmt.Errorf("%w: %d + %d does not fit into 64 bits", ErrOverflow, a, b)
	}
	return a + b, nil
}
