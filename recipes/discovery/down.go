package discovery

import (
	"sync"
	"time"
)

// downReports counts the reports of instances that have not responded. Its methods may be called from any
// goroutine.
type downReports struct {
	threshold int
	timeout   time.Duration

	mu      sync.Mutex
	reports map[identity]reportCount
}

type reportCount struct {
	first time.Time
	count int
}

// add records a report of an instance, and discards reports that are too old.
func (d *downReports) add(id identity) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for other, r := range d.reports {
		if now.Sub(r.first) >= d.timeout {
			delete(d.reports, other)
		}
	}
	r, known := d.reports[id]
	if !known {
		r.first = now
	}
	r.count++
	d.reports[id] = r
}

// availableInstances returns the instances in all that were not reported as down. If there are no reports, it
// returns the slice all itself.
func (d *downReports) availableInstances(all []Instance) []Instance {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.reports) == 0 {
		return all
	}
	now := time.Now()
	up := make([]Instance, 0, len(all))
	for _, i := range all {
		r, known := d.reports[i.identity()]
		if !known || r.count < d.threshold || now.Sub(r.first) >= d.timeout {
			up = append(up, i)
		}
	}
	return up
}
