// Package machine tells what figures depend on: the machine's load and the versions of
// what was linked.
package machine

import (
	"os"
	"runtime/debug"
	"strings"
)

// ModuleVersion is the version of a module that this program links; empty if it does not.
func ModuleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return ""
}

// Load is the machine's load average over one, five and fifteen minutes.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
