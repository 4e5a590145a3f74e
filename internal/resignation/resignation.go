// Package resignation defines the data by which a program requests candidates of other programs
// to resign. The data is that of the election node, which candidates of other libraries do not
// read. Each request names a candidate by the last element of its ID.
package resignation

import (
	"slices"
	"strings"
)

// head is the first line of data that contains requests. Each further line is a name.
const head = "asked to resign:"

// Parse returns the names of the candidates that are requested to resign. ok is false if the
// data is not empty and does not have this format: then another application owns it.
func Parse(data []byte) (names []string, ok bool) {
	if len(data) == 0 {
		return nil, true
	}
	lines := strings.Split(string(data), "\n")
	if lines[0] != head {
		return nil, false
	}
	return lines[1:], true
}

// Format returns the data for names, which is empty if there are none.
func Format(names []string) []byte {
	if len(names) == 0 {
		return nil
	}
	return []byte(head + "\n" + strings.Join(names, "\n"))
}

// Add returns names with name at the end. It omits candidates that are not present any more:
// requests to them, which any program may have left, have no purpose.
func Add(names, present []string, name string) []string {
	left := func(n string) bool { return n == name || !slices.Contains(present, n) }
	return append(slices.DeleteFunc(slices.Clone(names), left), name)
}

// Remove returns names without name.
func Remove(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}
