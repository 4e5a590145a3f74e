package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync/atomic"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

// Reader is an open snapshot whose whole content Open has verified. Several goroutines may use a
// Reader, which remains readable when another snapshot replaces its file.
type Reader struct {
	layout layout
	file   disk.File
	name   string
	closed atomic.Bool
}

// Open opens the newest snapshot in dir. It reads and verifies the whole file. Before that, it removes
// incomplete snapshots that a crash has left; therefore no Writer or Install may be in progress. To
// read a snapshot during a Writer or Install, call OpenFile with the file [Name] in dir. Errors wrap
// [io/fs.ErrNotExist] if there is no snapshot, and ErrCorrupt if the snapshot is damaged. After
// ErrCorrupt, a backup or the snapshot of another peer can be used.
func Open(fs disk.FS, dir string) (*Reader, error) {
	if err := removeTemps(fs, dir); err != nil {
		return nil, err
	}
	return OpenFile(fs, path.Join(dir, Name))
}

// OpenFile opens and verifies any snapshot file, such as a backup, and changes nothing. It returns the same
// errors as Open.
func OpenFile(fs disk.FS, name string) (*Reader, error) {
	f, err := fs.OpenRead(name)
	if err != nil {
		return nil, fmt.Errorf("snapshot: open %s: %w", name, err)
	}
	l, err := verifyFile(f)
	if err != nil {
		f.Close()
		if errors.Is(err, ErrCorrupt) {
			err = fmt.Errorf("%w; if a majority of the voters runs, remove this peer from the cluster, and let it join with an empty directory under a new ID; "+
				"otherwise start a new cluster from a backup (raftlog restore)", err)
		}
		return nil, fmt.Errorf("snapshot: read %s: %w", name, err)
	}
	return &Reader{layout: l, file: f, name: name}, nil
}

// Verify reads and verifies a whole snapshot file, and returns its metadata. The error wraps ErrCorrupt if the
// file is not a valid snapshot. The text of the error contains no part of the file.
func Verify(f disk.File) (Meta, error) {
	l, err := verifyFile(f)
	return l.meta, err
}

// verifyFile reads and verifies a whole snapshot file, and returns its layout.
func verifyFile(f disk.File) (layout, error) {
	size, err := f.Size()
	if err != nil {
		return layout{}, err
	}
	s := newScanner(f, size, section{})
	m, err := s.readMeta()
	if err != nil {
		return layout{}, err
	}
	l, err := s.readSections(m)
	if err == nil && l.size != size {
		err = s.corrupt("%d bytes follow the end frame", size-l.size)
	}
	return l, err
}

// newScanner returns a scanner that begins at the section from.
func newScanner(f disk.File, size int64, from section) *scanner {
	r := bufio.NewReaderSize(io.NewSectionReader(f, from.offset, size-from.offset), 2*maxChunk)
	return &scanner{r: r, offset: from.offset, crc: from.crc}
}

// Meta returns the metadata. Its field Conf is not nil, and the caller must not change it.
func (r *Reader) Meta() Meta { return r.layout.meta }

// Size returns the size of the snapshot file in bytes.
func (r *Reader) Size() int64 { return r.layout.size }

// DataSize returns the size in bytes of the state machine's data in the snapshot.
func (r *Reader) DataSize() int64 { return r.layout.data.size }

// Raw returns the content of the snapshot file, which another peer can pass to Install.
func (r *Reader) Raw() io.ReaderAt { return io.NewSectionReader(r.file, 0, r.layout.size) }

// Tables returns a new reader of the tables in the snapshot. If the file was damaged after Open, the
// reader fails with ErrCorrupt instead of io.EOF.
func (r *Reader) Tables() io.Reader { return r.newSection(kindTables, r.layout.tables) }

// Data returns a new reader of the state machine's data in the snapshot. If the file was damaged after
// Open, the reader fails with ErrCorrupt instead of io.EOF. Reading fails after the result or r is
// closed.
func (r *Reader) Data() io.ReadCloser { return r.newSection(kindData, r.layout.data) }

// Close closes the snapshot file. Later calls do nothing.
func (r *Reader) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	if err := r.file.Close(); err != nil {
		return fmt.Errorf("snapshot: close %s: %w", r.name, err)
	}
	return nil
}

func (r *Reader) newSection(kind byte, s section) *sectionReader {
	return &sectionReader{scanner: newScanner(r.file, r.layout.size, s), kind: kind, left: s.size, name: r.name}
}

// sectionReader reads the payloads of one section of a snapshot file.
type sectionReader struct {
	scanner *scanner
	kind    byte
	left    int64 // the number of bytes in frames that are not read yet
	chunk   []byte
	name    string
	err     error
}

func (s *sectionReader) Read(p []byte) (int, error) {
	if s.err == nil && len(s.chunk) == 0 && len(p) > 0 {
		s.readChunk()
	}
	if s.err != nil {
		return 0, s.err
	}
	n := copy(p, s.chunk)
	s.chunk = s.chunk[n:]
	return n, nil
}

func (s *sectionReader) readChunk() {
	if s.left == 0 {
		s.err = io.EOF
		return
	}
	kind, chunk, err := s.scanner.readFrame()
	if err == nil && (kind != s.kind || int64(len(chunk)) > s.left) {
		err = s.scanner.corrupt("the chunk was changed after the file was opened")
	}
	if err != nil {
		s.err = fmt.Errorf("snapshot: read %s: %w", s.name, err)
		return
	}
	s.chunk, s.left = chunk, s.left-int64(len(chunk))
}

// Close makes later calls of Read fail.
func (s *sectionReader) Close() error {
	s.err, s.chunk = fmt.Errorf("snapshot: read %s: %w", s.name, fs.ErrClosed), nil
	return nil
}
