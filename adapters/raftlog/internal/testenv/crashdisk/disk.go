// Package crashdisk is a disk in memory whose power can fail at any operation, and whose
// operations can: for tests of what must survive that.
//
// It keeps apart what is durable and what is only written. After a crash there is all that
// was synced, and of the rest any part: of unsynced writes some are there, some are not, and
// some are torn at sectors of 512 bytes; a file has its length of before or of after; and each
// change of a directory that no SyncDir followed has happened or has not. The random source
// decides; everything else is deterministic.
package crashdisk

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

var (
	// ErrCrashed: the power has failed; [Disk.Crash] has the disk as it is found then.
	ErrCrashed = errors.New("crashdisk: power has failed")
	// ErrIO is what an operation that was told to fail returns.
	ErrIO = errors.New("crashdisk: input/output error")
)

// Disk is a [disk.FS]. Any goroutine may call.
type Disk struct {
	mu      sync.Mutex
	random  *rand.Rand
	root    *node
	pending []change // of directories, in order
	locks   map[string]bool
	ops     int
	reads   int
	failAt  int
	failErr error
	failRd  int
	crashAt int
	crashed bool
	space   int64 // bytes that files may have together; negative: any
}

// node is a file or a directory.
type node struct {
	// of a directory: its entries as they are seen, and as they are durable
	live, durable map[string]*node
	// of a file: the same, and what leads from one to the other
	now, synced blob
	writes      []write
	lost        bool // a Sync has failed
}

// change is one of directories that is not durable yet: child loses a name or gets one, or
// both.
type change struct {
	child    *node
	from, to *node
	old, new string
}

// write is one to a file that is not durable yet.
type write struct {
	data   []byte // nil: the length changes
	off    int64  // or the new length
	extend bool   // the length only grows
}

// New returns an empty disk. It alone uses random from now on; so do the disks that it
// becomes by crashes, which must not be used at the same time.
func New(random *rand.Rand) *Disk {
	return &Disk{random: random, root: newDir(), locks: map[string]bool{}, space: -1}
}

func newDir() *node { return &node{live: map[string]*node{}, durable: map[string]*node{}} }

// Ops is the number of operations so far that change something or make it durable, failed
// ones included. Reading is counted by [Disk.Reads].
func (d *Disk) Ops() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ops
}

// Reads is the number of operations so far that only read: Open, OpenRead, List, Size, ReadAt.
func (d *Disk) Reads() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reads
}

// FailAt makes the n-th operation, as Ops counts, fail with [ErrIO]: nothing happens, except
// that a failing write may have written a part, and a failing Sync drops what was not durable,
// whatever later reads may show, and every later Sync of that file fails as well. 0 is none.
func (d *Disk) FailAt(n int) { d.FailWith(n, ErrIO) }

// FailWith is FailAt with another error.
func (d *Disk) FailWith(n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failAt, d.failErr = n, err
}

// FailReadAt makes the n-th operation, as Reads counts, fail with [ErrIO]. 0 is none.
func (d *Disk) FailReadAt(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failRd = n
}

// CrashAt lets the power fail in the n-th operation, as Ops counts: it, and all after it, even
// reads, return [ErrCrashed]. What the operation was to change is as any unsynced change. 0 is
// none.
func (d *Disk) CrashAt(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashAt = n
}

// SetSpace limits what all files together may have; an operation by which they would have
// more fails with ENOSPC and does nothing. Negative is no limit.
func (d *Disk) SetSpace(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.space = bytes
}

// begin counts an operation. If it returns an error, that is the operation's; crash tells that
// what it was to do may be kept nevertheless. d.mu is held.
func (d *Disk) begin() (crash bool, err error) {
	if d.crashed {
		return false, ErrCrashed
	}
	d.ops++
	if d.ops == d.crashAt {
		d.crashed = true
		return true, ErrCrashed
	}
	if d.ops == d.failAt {
		return false, d.failErr
	}
	return false, nil
}

func (d *Disk) read() error {
	if d.crashed {
		return ErrCrashed
	}
	d.reads++
	if d.reads == d.failRd {
		return ErrIO
	}
	return nil
}

func fail(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// find returns what has that name, or nil.
func (d *Disk) find(name string) *node {
	n := d.root
	if name == "." {
		return n
	}
	for part := range strings.SplitSeq(name, "/") {
		if n = n.live[part]; n == nil {
			return nil
		}
	}
	return n
}

// place returns the directory that a name is in, and the last part of it.
func (d *Disk) place(op, name string) (*node, string, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, "", fail(op, name, fs.ErrInvalid)
	}
	n := d.find(path.Dir(name))
	if n == nil || n.live == nil {
		return nil, "", fail(op, name, fs.ErrNotExist)
	}
	return n, path.Base(name), nil
}

// change does c, and remembers it until a SyncDir.
func (d *Disk) change(c change) {
	c.apply(func(n *node) map[string]*node { return n.live })
	d.pending = append(d.pending, c)
}

func (c change) apply(entries func(*node) map[string]*node) {
	if c.from != nil {
		if e := entries(c.from); e[c.old] == c.child {
			delete(e, c.old)
		}
	}
	if c.to != nil {
		entries(c.to)[c.new] = c.child
	}
}

// MkdirAll implements [disk.FS].
func (d *Disk) MkdirAll(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	crash, err := d.begin()
	if err != nil && !crash {
		return fail("mkdir", dir, err)
	}
	if !fs.ValidPath(dir) {
		return fail("mkdir", dir, fs.ErrInvalid)
	}
	n := d.root
	for part := range strings.SplitSeq(dir, "/") {
		if part == "." {
			break
		}
		next := n.live[part]
		if next == nil {
			next = newDir()
			d.change(change{child: next, to: n, new: part})
		}
		if next.live == nil {
			return fail("mkdir", dir, fs.ErrExist)
		}
		n = next
	}
	return err
}

// Create implements [disk.FS].
func (d *Disk) Create(name string) (disk.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	crash, err := d.begin()
	if err != nil && !crash {
		return nil, fail("create", name, err)
	}
	dir, base, bad := d.place("create", name)
	if bad != nil {
		return nil, bad
	}
	if dir.live[base] != nil {
		return nil, fail("create", name, fs.ErrExist)
	}
	n := &node{}
	d.change(change{child: n, to: dir, new: base})
	if err != nil {
		return nil, err
	}
	return &file{d: d, n: n, name: name}, nil
}

// Open implements [disk.FS].
func (d *Disk) Open(name string) (disk.File, error) { return d.open(name, false) }

// OpenRead implements [disk.FS].
func (d *Disk) OpenRead(name string) (disk.File, error) { return d.open(name, true) }

func (d *Disk) open(name string, readOnly bool) (disk.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.read(); err != nil {
		return nil, fail("open", name, err)
	}
	n := d.find(name)
	if n == nil {
		return nil, fail("open", name, fs.ErrNotExist)
	}
	if n.live != nil {
		return nil, fail("open", name, syscall.EISDIR)
	}
	return &file{d: d, n: n, name: name, readOnly: readOnly}, nil
}

// Rename implements [disk.FS].
func (d *Disk) Rename(from, to string) error { return d.move("rename", from, to, true) }

// Link implements [disk.FS].
func (d *Disk) Link(from, to string) error { return d.move("link", from, to, false) }

func (d *Disk) move(op, from, to string, rename bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	crash, err := d.begin()
	if err != nil && !crash {
		return fail(op, from, err)
	}
	fdir, fbase, bad := d.place(op, from)
	if bad != nil {
		return bad
	}
	tdir, tbase, bad := d.place(op, to)
	if bad != nil {
		return bad
	}
	n := fdir.live[fbase]
	switch {
	case n == nil:
		return fail(op, from, fs.ErrNotExist)
	case n.live != nil:
		return fail(op, from, syscall.EISDIR) // logs move files only
	case !rename && tdir.live[tbase] != nil:
		return fail(op, to, fs.ErrExist)
	case tdir.live[tbase] != nil && tdir.live[tbase].live != nil:
		return fail(op, to, fs.ErrExist)
	}
	c := change{child: n, to: tdir, new: tbase}
	if rename {
		c.from, c.old = fdir, fbase
	}
	d.change(c)
	return err
}

// Remove implements [disk.FS].
func (d *Disk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	crash, err := d.begin()
	if err != nil && !crash {
		return fail("remove", name, err)
	}
	dir, base, bad := d.place("remove", name)
	if bad != nil {
		return bad
	}
	n := dir.live[base]
	if n == nil {
		return fail("remove", name, fs.ErrNotExist)
	}
	if len(n.live) > 0 {
		return fail("remove", name, syscall.ENOTEMPTY)
	}
	d.change(change{child: n, from: dir, old: base})
	return err
}

// List implements [disk.FS].
func (d *Disk) List(dir string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.read(); err != nil {
		return nil, fail("list", dir, err)
	}
	n := d.find(dir)
	if n == nil || n.live == nil {
		return nil, fail("list", dir, fs.ErrNotExist)
	}
	return sorted(n.live), nil
}

func sorted(entries map[string]*node) []string {
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// SyncDir implements [disk.FS].
func (d *Disk) SyncDir(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.begin(); err != nil {
		return fail("sync", dir, err)
	}
	n := d.find(dir)
	if n == nil || n.live == nil {
		return fail("sync", dir, fs.ErrNotExist)
	}
	// With a change of this directory goes what has happened to the same file before.
	moved := map[*node]bool{}
	due := make([]bool, len(d.pending))
	for i, c := range slices.Backward(d.pending) {
		if c.from == n || c.to == n {
			moved[c.child] = true
		}
		due[i] = moved[c.child]
	}
	rest := d.pending[:0:0]
	for i, c := range d.pending {
		if due[i] {
			c.apply(durable)
		} else {
			rest = append(rest, c)
		}
	}
	d.pending = rest
	return nil
}

func durable(n *node) map[string]*node { return n.durable }

// Lock implements [disk.FS].
func (d *Disk) Lock(name string) (io.Closer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.begin(); err != nil {
		return nil, fail("lock", name, err)
	}
	dir, base, err := d.place("lock", name)
	if err != nil {
		return nil, err
	}
	if d.locks[name] {
		return nil, fail("lock", name, disk.ErrLocked)
	}
	if dir.live[base] == nil {
		d.change(change{child: &node{}, to: dir, new: base})
	}
	d.locks[name] = true
	return &lock{d: d, name: name}, nil
}

type lock struct {
	d    *Disk
	name string
	once sync.Once
}

func (l *lock) Close() error {
	l.once.Do(func() {
		l.d.mu.Lock()
		defer l.d.mu.Unlock()
		delete(l.d.locks, l.name)
	})
	return nil
}
