package recipes

import "encoding/json"

// Codec converts values to the data of a znode and back. It is an argument of the recipes that keep values,
// such as [github.com/go-leaderelection/leaderelection/recipes/value.New]:
//
//	limits, err := value.New(conn, "/config/limits", recipes.JSONCodec[Limits]())
//
// It is also an argument of the functions Of of packages queue, group, discovery and cache, which return a view of
// the recipe with values of one type. What cannot be decoded is delivered nevertheless, and the method Value of
// the view returns the error; in a queue, it becomes a dead letter.
//
// Codecs of other formats are structs with two functions:
//
//	protobuf := recipes.Codec[*Limits]{
//		Encode: func(l *Limits) ([]byte, error) { return proto.Marshal(l) },
//		Decode: func(data []byte) (*Limits, error) {
//			l := new(Limits)
//			return l, proto.Unmarshal(data, l)
//		},
//	}
//
// The functions of a codec may be called from any goroutine. Values may share memory with the slices that Encode
// returns and Decode receives: recipes copy them. Decode is not called if the znode does not exist.
type Codec[T any] struct {
	// Encode returns the data for a value.
	Encode func(T) ([]byte, error)
	// Decode returns the value for data. Recipes wrap its errors together with [ErrFormat].
	Decode func([]byte) (T, error)
}

// JSONCodec returns a codec that uses encoding/json.
func JSONCodec[T any]() Codec[T] {
	return Codec[T]{
		Encode: func(v T) ([]byte, error) { return json.Marshal(v) },
		Decode: func(data []byte) (v T, err error) {
			err = json.Unmarshal(data, &v)
			return v, err
		},
	}
}

// StringCodec returns a codec whose data is the text itself.
func StringCodec() Codec[string] {
	return Codec[string]{
		Encode: func(s string) ([]byte, error) { return []byte(s), nil },
		Decode: func(data []byte) (string, error) { return string(data), nil },
	}
}

// BytesCodec returns a codec whose data is the value itself.
func BytesCodec() Codec[[]byte] {
	return Codec[[]byte]{
		Encode: func(b []byte) ([]byte, error) { return b, nil },
		Decode: func(data []byte) ([]byte, error) { return data, nil },
	}
}
