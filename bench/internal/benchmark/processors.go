package benchmark

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// OthersLimit is the number of processor cores that other programs may use on average while a benchmark measures
// times. A program that occupies a core exceeds the limit even if the benchmark itself uses all cores; the usual
// services of a machine do not.
const OthersLimit = 0.25

// ProcessorUse is the processor time that the machine and each process have used since the machine has started.
type ProcessorUse struct {
	at        time.Time
	machine   time.Duration // the time that programs, interrupts, and other virtual machines have used
	processes map[int]processUse
}

// processUse is the processor time that a process and its children that have exited have used.
type processUse struct {
	parent int
	name   string
	used   time.Duration
}

// Others describes the processor time that programs other than the benchmark have used in a period.
type Others struct {
	Cores   float64 // the average number of cores
	Busiest string  // describes the process that has used most processor time; empty if there is none
}

// Disturb reports whether other programs have used so much processor time that times measured in the period are not
// comparable.
func (o Others) Disturb() bool { return o.Cores > OthersLimit }

func (o Others) String() string {
	text := fmt.Sprintf("other programs use %.2f cores", o.Cores)
	if o.Busiest != "" {
		text += ", most of it " + o.Busiest
	}
	return text
}

// Others returns the processor time that was used between before and u, except by the process root and its
// descendants.
func (u ProcessorUse) Others(before ProcessorUse, root int) Others {
	period := u.at.Sub(before.at)
	if period <= 0 {
		return Others{}
	}
	cores := func(used time.Duration) float64 { return max(0, used.Seconds()/period.Seconds()) }
	own := u.descendants(root) - before.descendants(root)
	o := Others{Cores: cores(u.machine - before.machine - own)}
	var most time.Duration
	for pid, p := range u.processes {
		if used := p.used - before.processes[pid].used; used > most && !u.isDescendant(pid, root) {
			most = used
			o.Busiest = fmt.Sprintf("%s (process %d, %.2f)", p.name, pid, cores(used))
		}
	}
	return o
}

// descendants returns the processor time of root and its descendants.
func (u ProcessorUse) descendants(root int) time.Duration {
	var sum time.Duration
	for pid, p := range u.processes {
		if u.isDescendant(pid, root) {
			sum += p.used
		}
	}
	return sum
}

func (u ProcessorUse) isDescendant(pid, root int) bool {
	// Limit the number of steps: the processes are not read at the same instant, so their parents can form a cycle.
	for range len(u.processes) {
		p, ok := u.processes[pid]
		if pid == root || !ok {
			return ok
		}
		pid = p.parent
	}
	return false
}

// parseMachine returns the processor time in the first line of /proc/stat: the sum of all columns except those of
// idle time, and those of virtual machines (guests), which other columns include.
func parseMachine(line string, tick time.Duration) (time.Duration, error) {
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat: unexpected line %q", line)
	}
	return sumTicks([]string{fields[1], fields[2], fields[3], fields[6], fields[7], fields[8]}, tick)
}

// parseProcess returns the processor time and the parent that the text of a file /proc/PID/stat
// contains.
func parseProcess(text string, tick time.Duration) (processUse, error) {
	// The name of the program can contain parentheses, so the last parenthesis ends it.
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return processUse{}, fmt.Errorf("/proc/PID/stat: unexpected content %q", text)
	}
	fields := strings.Fields(text[end+1:])
	const parent, firstTime, timesEnd = 1, 11, 15
	if len(fields) < timesEnd {
		return processUse{}, fmt.Errorf("/proc/PID/stat: unexpected content %q", text)
	}
	id, err := strconv.Atoi(fields[parent])
	if err != nil {
		return processUse{}, err
	}
	used, err := sumTicks(fields[firstTime:timesEnd], tick)
	return processUse{parent: id, name: text[open+1 : end], used: used}, err
}

func sumTicks(numbers []string, tick time.Duration) (time.Duration, error) {
	var sum int64
	for _, text := range numbers {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}
