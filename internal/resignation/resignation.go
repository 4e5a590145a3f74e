// Package resignation encodes requests to candidates of other programs to resign. The requests are
// stored in the data of the election node, which candidates of other libraries do not read. Each
// request names a candidate by the last element of its ID.
package resignation

import (
	"slices"
	"strings"
)

// header is the first line of data that contains requests. Each further line is a name.
const header = "asked to resign:"

// Parse returns the names of the candidates that are requested to resign. If ok is false, the data
// has another format, so it belongs to another application.
func Parse(data []byte) (names []string, ok bool) {
	if len(data) == 0 {
		return nil, true
	}
	lines := strings.Split(string(data), "\n")
	if lines[0] != header {
		return nil, false
	}
	return lines[1:], true
}

// Format returns the data for names, which is empty if names is empty.
func Format(names []string) []byte {
	if len(names) == 0 {
		return nil
	}
	return []byte(header + "\n" + strings.Join(names, "\n"))
}

// Add returns names with name at the end. It omits the names of candidates that are not present any
// more, because no candidate will receive these requests.
func Add(names, present []string, name string) []string {
	omit := func(n string) bool { return n == name || !slices.Contains(present, n) }
	return append(slices.DeleteFunc(slices.Clone(names), omit), name)
}

// Remove returns names without name.
func Remove(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}
