package crashdisk

// Open files.

import (
	"io"
	"io/fs"
	"syscall"
)

type file struct {
	d        *Disk
	n        *node
	name     string
	readOnly bool
	closed   bool
}

func (f *file) usable(op string) error {
	if f.closed {
		return fail(op, f.name, fs.ErrClosed)
	}
	return nil
}

// ReadAt implements [io.ReaderAt].
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.usable("read"); err != nil {
		return 0, err
	}
	if err := f.d.read(); err != nil {
		return 0, fail("read", f.name, err)
	}
	if off < 0 {
		return 0, fail("read", f.name, fs.ErrInvalid)
	}
	n := f.n.now.readAt(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Size implements [disk.File].
func (f *file) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.usable("size"); err != nil {
		return 0, err
	}
	if err := f.d.read(); err != nil {
		return 0, fail("size", f.name, err)
	}
	return f.n.now.size, nil
}

// WriteAt implements [io.WriterAt].
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	crash, err := f.begin("write", off)
	if err == nil {
		err = f.room("write", off+int64(len(p)))
	}
	if err != nil && !crash {
		// A part of what fails may be written.
		n := f.d.random.IntN(len(p) + 1)
		if err := f.usable("write"); err == nil && !f.readOnly && off >= 0 && !f.d.crashed && f.room("write", off+int64(n)) == nil {
			f.write(p[:n], off)
		}
		return 0, err
	}
	f.write(p, off)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *file) write(p []byte, off int64) {
	f.n.now.writeAt(p, off)
	f.n.writes = append(f.n.writes, write{data: append([]byte{}, p...), off: off})
}

// begin is what all operations that change the file begin with.
func (f *file) begin(op string, arg int64) (crash bool, err error) {
	if err := f.usable(op); err != nil {
		return false, err
	}
	crash, err = f.d.begin()
	switch {
	case f.readOnly:
		return false, fail(op, f.name, syscall.EBADF)
	case arg < 0:
		return false, fail(op, f.name, fs.ErrInvalid)
	case err != nil:
		return crash, fail(op, f.name, err)
	}
	return false, nil
}

// room tells whether the file may have that length.
func (f *file) room(op string, size int64) error {
	if f.d.space >= 0 && size > f.n.now.size && f.d.used(f.d.root, map[*node]bool{})+size-f.n.now.size > f.d.space {
		return fail(op, f.name, syscall.ENOSPC)
	}
	return nil
}

// Used is how many bytes all files have together, as [Disk.SetSpace] counts them.
func (d *Disk) Used() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used(d.root, map[*node]bool{})
}

func (d *Disk) used(n *node, seen map[*node]bool) int64 {
	if seen[n] {
		return 0
	}
	seen[n] = true
	sum := n.now.size
	for _, c := range n.live {
		sum += d.used(c, seen)
	}
	return sum
}

// Truncate implements [disk.File].
func (f *file) Truncate(size int64) error { return f.resize("truncate", size, false) }

// Allocate implements [disk.File].
func (f *file) Allocate(size int64) error { return f.resize("allocate", size, true) }

func (f *file) resize(op string, size int64, extend bool) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	crash, err := f.begin(op, size)
	if err == nil {
		err = f.room(op, size)
	}
	if err != nil && !crash {
		return err
	}
	w := write{off: size, extend: extend}
	w.apply(&f.n.now)
	f.n.writes = append(f.n.writes, w)
	return err
}

func (w write) apply(b *blob) {
	switch {
	case w.data != nil:
		b.writeAt(w.data, w.off)
	case !w.extend || w.off > b.size:
		b.resize(w.off)
	}
}

// Sync implements [disk.File].
func (f *file) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.usable("sync"); err != nil {
		return err
	}
	crash, err := f.d.begin()
	if err != nil {
		f.n.lost = f.n.lost || !crash && !f.d.crashed
	} else if f.n.lost {
		err = ErrIO
	}
	if err != nil {
		if f.n.lost {
			f.n.writes = nil
		}
		return fail("sync", f.name, err)
	}
	for _, w := range f.n.writes {
		w.apply(&f.n.synced)
	}
	f.n.writes = nil
	return nil
}

// Close implements [disk.File].
func (f *file) Close() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	err := f.usable("close")
	f.closed = true
	return err
}
