package record

import (
	"slices"
	"strings"
)

// header is the first line of data that contains requests to resign. Each further line is a name: the
// last element of the ID of a candidate.
const header = "asked to resign:"

// ParseRequests returns the names of the candidates that are requested to resign. If ok is false, the data
// has another format, so it belongs to another application.
func ParseRequests(data []byte) (names []string, ok bool) {
	if len(data) == 0 {
		return nil, true
	}
	lines := strings.Split(string(data), "\n")
	if lines[0] != header {
		return nil, false
	}
	return lines[1:], true
}

// FormatRequests returns the data for names, which is empty if names is empty.
func FormatRequests(names []string) []byte {
	if len(names) == 0 {
		return nil
	}
	return []byte(header + "\n" + strings.Join(names, "\n"))
}

// AddRequests returns names with name at the end. It omits the names of candidates that are not present any
// more, because no candidate will receive these requests.
func AddRequests(names, present []string, name string) []string {
	omit := func(n string) bool { return n == name || !slices.Contains(present, n) }
	return append(slices.DeleteFunc(slices.Clone(names), omit), name)
}

// RemoveRequests returns names without name.
func RemoveRequests(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}
