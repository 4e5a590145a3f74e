// Package record encodes what candidates of all kinds of elections store: a candidate's name and value,
// as the data of its znode or key, and requests to candidates of other programs to resign, as the data
// of the election node, which candidates of other libraries do not read.
package record

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// maxLength is the maximum length of a name and of a value, in bytes. It is far below the maximum size of
// a request, which is a megabyte on ZooKeeper and 1.5 MiB on etcd by default. ZooKeeper closes the
// connection after a longer request.
const maxLength = 64 << 10

// separator is between the name and the value in the data of a candidate. A name must not contain it.
const separator = "\x00"

// Check returns an error if a name or a value cannot be encoded. The error begins with the name of the
// option, WithName or WithValue.
func Check(name, value string) error {
	switch {
	case len(name) > maxLength:
		return fmt.Errorf("WithName: %d bytes exceed the limit of %d", len(name), maxLength)
	case len(value) > maxLength:
		return fmt.Errorf("WithValue: %d bytes exceed the limit of %d", len(value), maxLength)
	case strings.ContainsFunc(name, unicode.IsControl): // control characters include the separator
		return fmt.Errorf("WithName: %q contains a control character", clipText(name))
	case strings.Contains(value, separator): // a program could not receive such a value in an environment variable
		return fmt.Errorf("WithValue: %q contains a null character", clipText(value))
	}
	return nil
}

// clipText returns the beginning of a text, for an error message.
func clipText(text string) string { return text[:min(len(text), 100)] }

// Encode returns the data of a candidate with a name and a value. If the value is empty, the data is the name.
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

// requestsHeader is the first line of data that contains requests to resign. Each further line is a name: the
// last element of the ID of a candidate.
const requestsHeader = "asked to resign:"

// ParseRequests returns the names of the candidates that are requested to resign. If ok is false, the data
// has another format, so it belongs to another application.
func ParseRequests(data []byte) (names []string, ok bool) {
	if len(data) == 0 {
		return nil, true
	}
	lines := strings.Split(string(data), "\n")
	if lines[0] != requestsHeader {
		return nil, false
	}
	return lines[1:], true
}

// FormatRequests returns the data of an election node that requests the candidates in
// names to resign. The data is empty if names is empty.
func FormatRequests(names []string) []byte {
	if len(names) == 0 {
		return nil
	}
	return []byte(requestsHeader + "\n" + strings.Join(names, "\n"))
}

// AddRequests returns names, the candidates that are requested to resign, with name at the end. It omits
// candidates that are not in present, the candidates of the election, because they have left.
func AddRequests(names, present []string, name string) []string {
	omit := func(n string) bool { return n == name || !slices.Contains(present, n) }
	return append(slices.DeleteFunc(slices.Clone(names), omit), name)
}

// RemoveRequests returns names, the candidates that are requested to resign, without name.
func RemoveRequests(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}
