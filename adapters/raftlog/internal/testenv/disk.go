package testenv

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
	// ErrCrashed is returned by all operations after a crash of the disk. [Disk.Crash] returns the disk
	// as it is after the crash.
	ErrCrashed = errors.New("testenv: power has failed")
	// ErrIO is returned by an operation that a test makes fail by FailAt or FailReadAt.
	ErrIO = errors.New("testenv: input/output error")
)

// Disk is a disk in memory that can crash in any operation, and whose operations can fail. It implements
// [disk.FS]. Any goroutine may call its methods.
//
// After a crash, everything that was synced exists. Of the unsynced changes, some may exist: some writes are
// applied, some are not, and some are torn at sectors of 512 bytes; a file has its old or its new length;
// and each change of a directory that was not followed by SyncDir is applied or not. A random source decides
// about each change; everything else is deterministic.
type Disk struct {
	mu         sync.Mutex
	random     *rand.Rand
	root       *node
	pending    []dirChange // the changes of directories that are not durable, in order
	locks      map[string]bool
	ops        int
	reads      int
	failAt     int
	failErr    error
	failReadAt int
	crashAt    int
	crashed    bool
	space      int64 // the maximum total size of all files in bytes; negative if there is no limit
}

// node is a file or a directory of the disk.
type node struct {
	// live contains the current entries of a directory, and is nil if the node is a file. durable
	// contains those entries that are durable.
	live, durable map[string]*node
	// current is the content of a file, and synced is the durable content. writes are the changes that
	// lead from synced to current.
	current, synced content
	writes          []fileWrite
	syncFailed      bool
}

// dirChange is a change of directories that is not durable yet: the node child loses its name in the
// directory from, gets a name in the directory to, or both.
type dirChange struct {
	child            *node
	from, to         *node
	oldName, newName string
}

// fileWrite is a change of a file that is not durable yet.
type fileWrite struct {
	data   []byte // the written bytes; nil if the change only sets the length
	offset int64  // the offset of the written bytes, or the new length
	extend bool   // whether the length must not decrease
}

// NewDisk returns an empty disk whose random source has the given seed. The disk and its copies after
// crashes share the random source, so they must not be used concurrently.
func NewDisk(seed uint64) *Disk { return newDisk(rand.New(rand.NewPCG(seed, 1))) }

func newDisk(random *rand.Rand) *Disk {
	return &Disk{random: random, root: newDir(), locks: map[string]bool{}, space: -1}
}

func newDir() *node { return &node{live: map[string]*node{}, durable: map[string]*node{}} }

// Ops returns the number of operations so far that change something or make something durable,
// including failed ones. [Disk.Reads] returns the number of all other operations.
func (d *Disk) Ops() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ops
}

// Reads returns the number of operations so far that only read: Open, OpenRead, List, Size and ReadAt.
func (d *Disk) Reads() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reads
}

// FailAt makes the n-th operation, as counted by Ops, fail with [ErrIO] without any effect, with two
// exceptions: a failed write may have written a part of the data, and a failed Sync discards everything
// that was not durable, although it can still be read, and makes every later Sync of the file fail. If
// n is 0, no operation fails.
func (d *Disk) FailAt(n int) { d.FailWith(n, ErrIO) }

// FailWith makes the n-th operation fail like FailAt, but with err instead of ErrIO.
func (d *Disk) FailWith(n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failAt, d.failErr = n, err
}

// FailReadAt makes the n-th operation, as counted by Reads, fail with [ErrIO]. If n is 0, no
// operation fails.
func (d *Disk) FailReadAt(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failReadAt = n
}

// CrashAt makes the disk crash in the n-th operation, as counted by Ops. This operation and all later
// ones, including reads, return [ErrCrashed]. The change of the n-th operation may survive the crash,
// like any unsynced change. If n is 0, the disk does not crash.
func (d *Disk) CrashAt(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashAt = n
}

// SetSpace limits the total size of all files in bytes. An operation that would exceed the limit
// fails with ENOSPC and changes nothing. A negative limit means that the size is not limited.
func (d *Disk) SetSpace(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.space = bytes
}

// countOperation counts an operation of the disk, and decides whether the operation fails. The
// operation must return err if it is not nil. If crash is true, the operation must be executed
// nevertheless, because its change may survive the crash. The caller holds d.mu.
func (d *Disk) countOperation() (crash bool, err error) {
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

func (d *Disk) countRead() error {
	if d.crashed {
		return ErrCrashed
	}
	d.reads++
	if d.reads == d.failReadAt {
		return ErrIO
	}
	return nil
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// lookUp returns the node with the given name, or nil if there is none.
func (d *Disk) lookUp(name string) *node {
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

// locateEntry returns the directory that contains the named file, and the last element of the file's
// name.
func (d *Disk) locateEntry(op, name string) (*node, string, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, "", pathError(op, name, fs.ErrInvalid)
	}
	n := d.lookUp(path.Dir(name))
	if n == nil || n.live == nil {
		return nil, "", pathError(op, name, fs.ErrNotExist)
	}
	return n, path.Base(name), nil
}

// applyChange applies a change of directories, which SyncDir makes durable later.
func (d *Disk) applyChange(c dirChange) {
	c.applyTo(func(n *node) map[string]*node { return n.live })
	d.pending = append(d.pending, c)
}

// applyTo applies the change to the entries of directories, which the function entries returns: the
// live or the durable ones.
func (c dirChange) applyTo(entries func(*node) map[string]*node) {
	if c.from != nil {
		if e := entries(c.from); e[c.oldName] == c.child {
			delete(e, c.oldName)
		}
	}
	if c.to != nil {
		entries(c.to)[c.newName] = c.child
	}
}

// MkdirAll implements [disk.FS].
func (d *Disk) MkdirAll(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	crash, err := d.countOperation()
	if err != nil && !crash {
		return pathError("mkdir", dir, err)
	}
	if !fs.ValidPath(dir) {
		return pathError("mkdir", dir, fs.ErrInvalid)
	}
	n := d.root
	for part := range strings.SplitSeq(dir, "/") {
		if part == "." {
			break
		}
		next := n.live[part]
		if next == nil {
			next = newDir()
			d.applyChange(dirChange{child: next, to: n, newName: part})
		}
		if next.live == nil {
			return pathError("mkdir", dir, fs.ErrExist)
		}
		n = next
	}
	return err
}

// Create implements [disk.FS].
func (d *Disk) Create(name string) (disk.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	crash, err := d.countOperation()
	if err != nil && !crash {
		return nil, pathError("create", name, err)
	}
	dir, base, bad := d.locateEntry("create", name)
	if bad != nil {
		return nil, bad
	}
	if dir.live[base] != nil {
		return nil, pathError("create", name, fs.ErrExist)
	}
	n := &node{}
	d.applyChange(dirChange{child: n, to: dir, newName: base})
	if err != nil {
		return nil, err
	}
	return &openFile{disk: d, node: n, name: name}, nil
}

// Open implements [disk.FS].
func (d *Disk) Open(name string) (disk.File, error) { return d.openNode(name, false) }

// OpenRead implements [disk.FS].
func (d *Disk) OpenRead(name string) (disk.File, error) { return d.openNode(name, true) }

func (d *Disk) openNode(name string, readOnly bool) (disk.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.countRead(); err != nil {
		return nil, pathError("open", name, err)
	}
	n := d.lookUp(name)
	if n == nil {
		return nil, pathError("open", name, fs.ErrNotExist)
	}
	if n.live != nil {
		return nil, pathError("open", name, syscall.EISDIR)
	}
	return &openFile{disk: d, node: n, name: name, readOnly: readOnly}, nil
}

// Rename implements [disk.FS].
func (d *Disk) Rename(from, to string) error { return d.moveName("rename", from, to, true) }

// Link implements [disk.FS].
func (d *Disk) Link(from, to string) error { return d.moveName("link", from, to, false) }

func (d *Disk) moveName(op, from, to string, rename bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	crash, err := d.countOperation()
	if err != nil && !crash {
		return pathError(op, from, err)
	}
	fdir, fbase, bad := d.locateEntry(op, from)
	if bad != nil {
		return bad
	}
	tdir, tbase, bad := d.locateEntry(op, to)
	if bad != nil {
		return bad
	}
	n := fdir.live[fbase]
	switch {
	case n == nil:
		return pathError(op, from, fs.ErrNotExist)
	case n.live != nil:
		return pathError(op, from, syscall.EISDIR) // only files can be renamed, because a log renames no directories
	case !rename && tdir.live[tbase] != nil:
		return pathError(op, to, fs.ErrExist)
	case tdir.live[tbase] != nil && tdir.live[tbase].live != nil:
		return pathError(op, to, fs.ErrExist)
	}
	c := dirChange{child: n, to: tdir, newName: tbase}
	if rename {
		c.from, c.oldName = fdir, fbase
	}
	d.applyChange(c)
	return err
}

// Remove implements [disk.FS].
func (d *Disk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	crash, err := d.countOperation()
	if err != nil && !crash {
		return pathError("remove", name, err)
	}
	dir, base, bad := d.locateEntry("remove", name)
	if bad != nil {
		return bad
	}
	n := dir.live[base]
	if n == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if len(n.live) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	d.applyChange(dirChange{child: n, from: dir, oldName: base})
	return err
}

// List implements [disk.FS].
func (d *Disk) List(dir string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.countRead(); err != nil {
		return nil, pathError("list", dir, err)
	}
	n := d.lookUp(dir)
	if n == nil || n.live == nil {
		return nil, pathError("list", dir, fs.ErrNotExist)
	}
	return sortedNames(n.live), nil
}

func sortedNames(entries map[string]*node) []string {
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
	if _, err := d.countOperation(); err != nil {
		return pathError("sync", dir, err)
	}
	n := d.lookUp(dir)
	if n == nil || n.live == nil {
		return pathError("sync", dir, fs.ErrNotExist)
	}
	// Also make durable the earlier changes of the same files in other directories, so that the changes of a
	// file become durable in order.
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
			c.applyTo(durableEntries)
		} else {
			rest = append(rest, c)
		}
	}
	d.pending = rest
	return nil
}

func durableEntries(n *node) map[string]*node { return n.durable }

// Lock implements [disk.FS].
func (d *Disk) Lock(name string) (io.Closer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.countOperation(); err != nil {
		return nil, pathError("lock", name, err)
	}
	dir, base, err := d.locateEntry("lock", name)
	if err != nil {
		return nil, err
	}
	if d.locks[name] {
		return nil, pathError("lock", name, disk.ErrLocked)
	}
	if dir.live[base] == nil {
		d.applyChange(dirChange{child: &node{}, to: dir, newName: base})
	}
	d.locks[name] = true
	return &heldLock{disk: d, name: name}, nil
}

type heldLock struct {
	disk *Disk
	name string
	once sync.Once
}

func (l *heldLock) Close() error {
	l.once.Do(func() {
		l.disk.mu.Lock()
		defer l.disk.mu.Unlock()
		delete(l.disk.locks, l.name)
	})
	return nil
}
