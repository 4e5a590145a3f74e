package crashdisk

// What is found after the power has failed.

const sector = 512

// Crash returns the disk as it is found when the power is back: of what was not durable any
// part is there, as the random source decides. Nobody holds a lock, and no hook is set. d must
// not be used any more, except to crash once more: another outcome of the same failure.
func (d *Disk) Crash() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashed = true
	found := New(d.random)
	found.space = d.space
	d.root.crash(d.pending, d.keeper(), map[*node]*node{}, found)
	return found
}

// keeper decides of each unsynced change whether it is kept: all, none, or each by chance, so
// that the extremes are as usual as they are in life.
func (d *Disk) keeper() func() bool {
	switch d.random.IntN(6) {
	case 0:
		return func() bool { return false }
	case 1:
		return func() bool { return true }
	}
	return func() bool { return d.random.IntN(2) == 0 }
}

// crash fills found with what survives below n, the root.
func (n *node) crash(pending []change, keep func() bool, done map[*node]*node, found *Disk) {
	entries := map[*node]map[string]*node{}
	of := func(dir *node) map[string]*node {
		e := entries[dir]
		if e == nil {
			e = map[string]*node{}
			for name, c := range dir.durable {
				e[name] = c
			}
			entries[dir] = e
		}
		return e
	}
	for _, c := range pending {
		if keep() {
			c.apply(of)
		}
	}
	found.root = n.survive(of, keep, done, found)
}

func (n *node) survive(of func(*node) map[string]*node, keep func() bool, done map[*node]*node, d *Disk) *node {
	if s := done[n]; s != nil {
		return s
	}
	var s *node
	if n.live != nil {
		s = newDir()
		done[n] = s
		e := of(n)
		for _, name := range sorted(e) { // sorted: the random source is asked in one order
			c := e[name].survive(of, keep, done, d)
			s.live[name], s.durable[name] = c, c
		}
		return s
	}
	s = &node{synced: n.synced.clone()}
	done[n] = s
	for _, w := range n.writes {
		d.tear(w, &s.synced, keep)
	}
	s.now = s.synced.clone()
	return s
}

// tear does of a write what has reached the disk.
func (d *Disk) tear(w write, b *blob, keep func() bool) {
	if !keep() {
		return
	}
	size := b.size
	if w.data == nil || d.random.IntN(2) == 0 {
		w.apply(b)
	} else {
		for at := w.off; at < w.off+int64(len(w.data)); {
			end := min(at-at%sector+sector, w.off+int64(len(w.data)))
			if keep() {
				b.writeAt(w.data[at-w.off:end-w.off], at)
			}
			at = end
		}
	}
	if w.data != nil && b.size > size && d.random.IntN(4) == 0 {
		b.resize(size) // the data were written, the file's new length was not
	}
}
