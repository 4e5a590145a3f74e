package testenv

import (
	"maps"
	"math/rand/v2"
)

// sector is the size in bytes of the parts of a write, each of which survives a crash or not.
const sector = 512

// Crash returns the disk as it is after a crash: the random source decides which of the changes that
// were not durable have survived. On the result, no lock is held, and no failure is configured. After
// Crash, d must not be used, except to call Crash again, which returns another possible outcome.
func (d *Disk) Crash() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashed = true
	o := &crashOutcome{random: d.random, survives: newChoice(d.random), entries: map[*node]map[string]*node{}, copies: map[*node]*node{}}
	for _, c := range d.pending {
		if o.survives() {
			c.applyTo(o.entriesOf)
		}
	}
	found := newDisk(d.random)
	found.space = d.space
	found.root = o.copyOf(d.root)
	return found
}

// crashOutcome is one possible outcome of a crash.
type crashOutcome struct {
	random   *rand.Rand
	survives func() bool                // decides at random whether a change survives
	entries  map[*node]map[string]*node // the entries of directories that have survived
	copies   map[*node]*node            // maps the nodes before the crash to their copies after it
}

// newChoice returns a function that decides for each unsynced change whether it survives. newChoice
// chooses whether all changes, none, or each at random survives, because all and none would otherwise
// be improbable.
func newChoice(random *rand.Rand) func() bool {
	switch random.IntN(6) {
	case 0:
		return func() bool { return false }
	case 1:
		return func() bool { return true }
	}
	return func() bool { return random.IntN(2) == 0 }
}

func (o *crashOutcome) entriesOf(dir *node) map[string]*node {
	if o.entries[dir] == nil {
		o.entries[dir] = maps.Clone(dir.durable)
	}
	return o.entries[dir]
}

// copyOf returns the copy of n on the disk after the crash, with the content that survives.
func (o *crashOutcome) copyOf(n *node) *node {
	if c := o.copies[n]; c != nil {
		return c
	}
	if n.live != nil {
		c := newDir()
		o.copies[n] = c
		entries := o.entriesOf(n)
		for _, name := range sortedNames(entries) { // sorted, so that the same seed has the same outcome
			child := o.copyOf(entries[name])
			c.live[name], c.durable[name] = child, child
		}
		return c
	}
	c := &node{synced: n.synced.clone()}
	o.copies[n] = c
	for _, w := range n.writes {
		o.applyTorn(w, &c.synced)
	}
	c.current = c.synced.clone()
	return c
}

// applyTorn applies those parts of a write to b that survive the crash.
func (o *crashOutcome) applyTorn(w fileWrite, b *content) {
	if !o.survives() {
		return
	}
	size := b.size
	if w.data == nil || o.random.IntN(2) == 0 {
		w.applyTo(b)
	} else {
		for at := w.offset; at < w.offset+int64(len(w.data)); {
			end := min(at-at%sector+sector, w.offset+int64(len(w.data)))
			if o.survives() {
				b.writeAt(w.data[at-w.offset:end-w.offset], at)
			}
			at = end
		}
	}
	if w.data != nil && b.size > size && o.random.IntN(4) == 0 {
		b.resize(size) // the data survives, but the new length of the file does not
	}
}
