package testenv

import (
	"io"
	"io/fs"
	"syscall"
)

// openFile is an open file of a Disk. It implements [disk.File].
type openFile struct {
	disk     *Disk
	node     *node
	name     string
	readOnly bool
	closed   bool
}

func (f *openFile) checkOpen(op string) error {
	if f.closed {
		return pathError(op, f.name, fs.ErrClosed)
	}
	return nil
}

// ReadAt implements [io.ReaderAt].
func (f *openFile) ReadAt(p []byte, offset int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.checkOpen("read"); err != nil {
		return 0, err
	}
	if err := f.disk.countRead(); err != nil {
		return 0, pathError("read", f.name, err)
	}
	if offset < 0 {
		return 0, pathError("read", f.name, fs.ErrInvalid)
	}
	n := f.node.current.readAt(p, offset)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Size implements [disk.File].
func (f *openFile) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.checkOpen("size"); err != nil {
		return 0, err
	}
	if err := f.disk.countRead(); err != nil {
		return 0, pathError("size", f.name, err)
	}
	return f.node.current.size, nil
}

// WriteAt implements [io.WriterAt].
func (f *openFile) WriteAt(p []byte, offset int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	crash, err := f.beginChange("write", offset)
	if err == nil {
		err = f.checkSpace("write", offset+int64(len(p)))
	}
	if err != nil && !crash {
		// A failed write may have written a part of the data.
		n := f.disk.random.IntN(len(p) + 1)
		if err := f.checkOpen("write"); err == nil && !f.readOnly && offset >= 0 && !f.disk.crashed && f.checkSpace("write", offset+int64(n)) == nil {
			f.recordWrite(p[:n], offset)
		}
		return 0, err
	}
	f.recordWrite(p, offset)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *openFile) recordWrite(p []byte, offset int64) {
	f.node.current.writeAt(p, offset)
	f.node.writes = append(f.node.writes, fileWrite{data: append([]byte{}, p...), offset: offset})
}

// beginChange counts an operation that changes the file, and checks that the argument arg of the operation
// is not negative. It returns the results of countOperation.
func (f *openFile) beginChange(op string, arg int64) (crash bool, err error) {
	if err := f.checkOpen(op); err != nil {
		return false, err
	}
	crash, err = f.disk.countOperation()
	switch {
	case f.readOnly:
		return false, pathError(op, f.name, syscall.EBADF)
	case arg < 0:
		return false, pathError(op, f.name, fs.ErrInvalid)
	case err != nil:
		return crash, pathError(op, f.name, err)
	}
	return false, nil
}

// checkSpace returns an error if the disk has no space for the file with the given length.
func (f *openFile) checkSpace(op string, size int64) error {
	if f.disk.space >= 0 && size > f.node.current.size && f.disk.usedBy(f.disk.root, map[*node]bool{})+size-f.node.current.size > f.disk.space {
		return pathError(op, f.name, syscall.ENOSPC)
	}
	return nil
}

// Used returns the total size of all files in bytes, which [Disk.SetSpace] limits.
func (d *Disk) Used() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.usedBy(d.root, map[*node]bool{})
}

func (d *Disk) usedBy(n *node, seen map[*node]bool) int64 {
	if seen[n] {
		return 0
	}
	seen[n] = true
	sum := n.current.size
	for _, c := range n.live {
		sum += d.usedBy(c, seen)
	}
	return sum
}

// Truncate implements [disk.File].
func (f *openFile) Truncate(size int64) error { return f.changeSize("truncate", size, false) }

// Allocate implements [disk.File].
func (f *openFile) Allocate(size int64) error { return f.changeSize("allocate", size, true) }

func (f *openFile) changeSize(op string, size int64, extend bool) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	crash, err := f.beginChange(op, size)
	if err == nil {
		err = f.checkSpace(op, size)
	}
	if err != nil && !crash {
		return err
	}
	w := fileWrite{offset: size, extend: extend}
	w.applyTo(&f.node.current)
	f.node.writes = append(f.node.writes, w)
	return err
}

func (w fileWrite) applyTo(b *content) {
	switch {
	case w.data != nil:
		b.writeAt(w.data, w.offset)
	case !w.extend || w.offset > b.size:
		b.resize(w.offset)
	}
}

// Sync implements [disk.File].
func (f *openFile) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.checkOpen("sync"); err != nil {
		return err
	}
	crash, err := f.disk.countOperation()
	if err != nil {
		f.node.syncFailed = f.node.syncFailed || !crash && !f.disk.crashed
	} else if f.node.syncFailed {
		err = ErrIO
	}
	if err != nil {
		if f.node.syncFailed {
			f.node.writes = nil
		}
		return pathError("sync", f.name, err)
	}
	for _, w := range f.node.writes {
		w.applyTo(&f.node.synced)
	}
	f.node.writes = nil
	return nil
}

// Close implements [disk.File].
func (f *openFile) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	err := f.checkOpen("close")
	f.closed = true
	return err
}
