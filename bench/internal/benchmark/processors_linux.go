package benchmark

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// userTick is the unit of times in /proc. The kernel's constant USER_HZ is 100 on all platforms that Go supports.
const userTick = 10 * time.Millisecond

// ReadProcessorUse reads the processor time that the machine and each process have used so far. This takes some
// milliseconds.
func ReadProcessorUse() (ProcessorUse, error) {
	u := ProcessorUse{at: time.Now(), processes: map[int]processUse{}}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	if u.machine, err = parseMachine(first, userTick); err != nil {
		return u, err
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return u, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has exited in the meantime
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return u, err
		}
		if u.processes[pid], err = parseProcess(string(text), userTick); err != nil {
			return u, err
		}
	}
	return u, nil
}

// processorModel returns the name of the processor, or "" if it is unknown.
func processorModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
