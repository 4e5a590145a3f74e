// Package candidatedata encodes what a candidate shows to observers, its name and the value that
// it advertises, as the data of its znode or key.
package candidatedata

import (
	"fmt"
	"strings"
)

// limit is far below what a server accepts in one request: a megabyte on ZooKeeper, 1.5 MiB on
// etcd by default. ZooKeeper closes the connection at each longer request.
const limit = 64 << 10

// separator is between the name and the value.
const separator = "\x00"

// Check returns an error that names the option, WithClientName or WithValue, which cannot be
// encoded.
func Check(name, value string) error {
	switch {
	case len(name) > limit:
		return fmt.Errorf("WithClientName: %d bytes exceed the limit of %d", len(name), limit)
	case len(value) > limit:
		return fmt.Errorf("WithValue: %d bytes exceed the limit of %d", len(value), limit)
	case strings.Contains(name, separator):
		return fmt.Errorf("WithClientName: the name contains a null character")
	}
	return nil
}

// Encode returns the data for a name and a value. Without a value they are the name.
func Encode(name, value string) []byte {
	if value == "" {
		return []byte(name)
	}
	return []byte(name + separator + value)
}

// Decode is the reverse of Encode. Data without a separator are a name.
func Decode(data []byte) (name, value string) {
	name, value, _ = strings.Cut(string(data), separator)
	return name, value
}
