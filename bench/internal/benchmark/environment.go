package benchmark

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// Environment describes the machine and the software on which the figures of a benchmark depend.
type Environment struct {
	CPUs       int               `json:"cpus"`
	Processor  string            `json:"processor,omitempty"` // the model of the processor
	Platform   string            `json:"platform"`
	Go         string            `json:"go"`
	Versions   map[string]string `json:"versions"` // the versions of the compared software, by module or program
	LoadBefore string            `json:"load_before"`
	LoadAfter  string            `json:"load_after"`
}

// NewEnvironment returns the environment of this process: with the load of the machine before the measurement, and
// the versions of those of the given modules that the program links.
func NewEnvironment(modules ...string) Environment {
	e := Environment{
		CPUs: runtime.GOMAXPROCS(0), Processor: processorModel(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		Versions: map[string]string{}, LoadBefore: Load(),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return e
	}
	for _, m := range info.Deps {
		if slices.Contains(modules, m.Path) {
			e.Versions[m.Path] = m.Version
		}
	}
	return e
}

// String returns the environment on one line, without the load.
func (e Environment) String() string {
	parts := []string{fmt.Sprintf("%d CPUs, %s, %s", e.CPUs, e.Platform, e.Go)}
	if e.Processor != "" {
		parts[0] = fmt.Sprintf("%d CPUs (%s), %s, %s", e.CPUs, e.Processor, e.Platform, e.Go)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Versions)) {
		parts = append(parts, name+" "+e.Versions[name])
	}
	return strings.Join(parts, "; ")
}

// Load returns the load average of the machine over one, five and fifteen minutes.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
