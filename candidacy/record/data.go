// Package record encodes what candidates of all kinds of elections store: a candidate's name and value,
// as the data of its znode or key, and requests to candidates of other programs to resign, as the data
// of the election node, which candidates of other libraries do not read.
package record

import (
	"fmt"
	"strings"
	"unicode"
)

// limit is the maximum length of a name and of a value, in bytes. It is far below the maximum size of
// a request, which is a megabyte on ZooKeeper and 1.5 MiB on etcd by default. ZooKeeper closes the
// connection after a longer request.
const limit = 64 << 10

// separator separates the name from the value.
const separator = "\x00"

// Check returns an error if a name or a value cannot be encoded. The error begins with the name of the
// option, WithName or WithValue.
func Check(name, value string) error {
	switch {
	case len(name) > limit:
		return fmt.Errorf("WithName: %d bytes exceed the limit of %d", len(name), limit)
	case len(value) > limit:
		return fmt.Errorf("WithValue: %d bytes exceed the limit of %d", len(value), limit)
	case strings.ContainsFunc(name, unicode.IsControl): // such as the separator
		return fmt.Errorf("WithName: %q contains a control character", clip(name))
	case strings.Contains(value, separator): // no variable of an environment can contain it
		return fmt.Errorf("WithValue: %q contains a null character", clip(value))
	}
	return nil
}

// clip returns the beginning of a text, for an error.
func clip(text string) string { return text[:min(len(text), 100)] }

// Encode returns the data for a name and a value. If the value is empty, the data is the name.
func Encode(name, value string) []byte {
	if value == "" {
		return []byte(name)
	}
	return []byte(name + separator + value)
}

// Decode is the inverse of Encode. Data without a separator is a name.
func Decode(data []byte) (name, value string) {
	name, value, _ = strings.Cut(string(data), separator)
	return name, value
}
