package discovery

import (
	"sync"
	"time"
)

// down keeps the instances that were reported as down. Its methods may be called from
// any goroutine.
type down struct {
	threshold int
	timeout   time.Duration

	mu      sync.Mutex
	reports map[identity]reports
}

type reports struct {
	first time.Time
	count int
}

// report counts a failure.
func (d *down) report(id identity) {
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

// up leaves out those that are down. It returns all itself if none is.
func (d *down) up(all []Instance) []Instance {
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
