package value

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// int64Codec is the format of Curator's DistributedAtomicLong: 8 bytes. Empty data is 0.
var int64Codec = recipes.Codec[int64]{
	Encode: func(n int64) ([]byte, error) { return binary.BigEndian.AppendUint64(nil, uint64(n)), nil },
	Decode: func(data []byte) (int64, error) {
		switch len(data) {
		case 0:
			return 0, nil
		case 8:
			return int64(binary.BigEndian.Uint64(data)), nil
		}
		return 0, fmt.Errorf("counter has %d bytes, want 8", len(data))
	},
}

// int32Codec is the format of Curator's SharedCount and DistributedAtomicInteger: 4 bytes. Empty
// data is 0.
var int32Codec = recipes.Codec[int64]{
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
		return 0, fmt.Errorf("counter has %d bytes, want 4", len(data))
	},
}

// decimalCodec is the default format of kazoo's Counter for integers. Empty data is 0.
var decimalCodec = recipes.Codec[int64]{
	Encode: func(n int64) ([]byte, error) { return strconv.AppendInt(nil, n, 10), nil },
	Decode: func(data []byte) (int64, error) {
		if len(data) == 0 {
			return 0, nil
		}
		return strconv.ParseInt(string(data), 10, 64)
	},
}

// add returns a+b, or ErrOverflow if the sum does not fit into 64 bits.
func add(a, b int64) (int64, error) {
	if b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b {
		return 0, fmt.Errorf("%w: %d + %d does not fit into 64 bits", ErrOverflow, a, b)
	}
	return a + b, nil
}
