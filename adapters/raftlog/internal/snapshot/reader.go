// This file reads snapshots.

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

// Reader is an open snapshot, which was found whole and undamaged. Any goroutines may use it.
// It stays readable when another snapshot takes its place.
type Reader struct {
	layout
	f    disk.File
	name string
	over atomic.Bool
}

// Open opens the newest snapshot of dir. Before that it removes what a crash has left of
// snapshots that were not complete; so there must not be any Writer or Install under way:
// meanwhile use OpenFile with [Name] in dir. It reads the whole file. Errors wrap
// [io/fs.ErrNotExist] if there is none, and ErrCorrupt, for which the remedy is a backup or
// the snapshot of another peer.
func Open(fs disk.FS, dir string) (*Reader, error) {
	if err := removeTemps(fs, dir); err != nil {
		return nil, err
	}
	return OpenFile(fs, path.Join(dir, Name))
}

// OpenFile opens any snapshot, such as a backup, and changes nothing. Errors are as with
// Open.
func OpenFile(fs disk.FS, name string) (*Reader, error) {
	f, err := fs.OpenRead(name)
	if err != nil {
		return nil, fmt.Errorf("snapshot: open %s: %w", name, err)
	}
	l, err := verify(f)
	if err != nil {
		f.Close()
		if errors.Is(err, ErrCorrupt) {
			err = fmt.Errorf("%w; use a backup, or the snapshot of another peer", err)
		}
		return nil, fmt.Errorf("snapshot: read %s: %w", name, err)
	}
	return &Reader{layout: l, f: f, name: name}, nil
}

// verify reads all of a file.
func verify(f disk.File) (layout, error) {
	size, err := f.Size()
	if err != nil {
		return layout{}, err
	}
	s := fileScanner(f, size, section{})
	m, err := s.meta()
	if err != nil {
		return layout{}, err
	}
	l, err := s.rest(m)
	if err == nil && l.size != size {
		err = s.damaged("%d bytes follow its end", size-l.size)
	}
	return l, err
}

// fileScanner scans a file from a section's beginning on.
func fileScanner(f disk.File, size int64, from section) *scanner {
	r := bufio.NewReaderSize(io.NewSectionReader(f, from.at, size-from.at), 2*maxChunk)
	return &scanner{r: r, at: from.at, crc: from.crc}
}

// Meta says what the snapshot is of. Conf is not nil and must not be changed.
func (r *Reader) Meta() Meta { return r.meta }

// Size is the file's, in bytes.
func (r *Reader) Size() int64 { return r.size }

// DataSize is that of the state machine's data, in bytes.
func (r *Reader) DataSize() int64 { return r.data.size }

// Raw is the file as it is, to be sent and installed elsewhere.
func (r *Reader) Raw() io.ReaderAt { return io.NewSectionReader(r.f, 0, r.size) }

// Tables reads the tables, from their beginning with each call. If the file was damaged
// since it was opened, the reader fails with ErrCorrupt and does not end.
func (r *Reader) Tables() io.Reader { return r.section(kindTables, r.tables) }

// Data reads the state machine's data as Tables does the tables. Reading fails after Close
// of what it returns, or of r.
func (r *Reader) Data() io.ReadCloser { return r.section(kindData, r.data) }

// Close closes the file. To close again does nothing.
func (r *Reader) Close() error {
	if r.over.Swap(true) {
		return nil
	}
	if err := r.f.Close(); err != nil {
		return fmt.Errorf("snapshot: close %s: %w", r.name, err)
	}
	return nil
}

func (r *Reader) section(kind byte, s section) *sectionReader {
	return &sectionReader{s: fileScanner(r.f, r.size, s), kind: kind, left: s.size, name: r.name}
}

type sectionReader struct {
	s     *scanner
	kind  byte
	left  int64 // bytes of chunks to come
	chunk []byte
	name  string
	err   error
}

func (s *sectionReader) Read(p []byte) (int, error) {
	if s.err == nil && len(s.chunk) == 0 && len(p) > 0 {
		s.next()
	}
	if s.err != nil {
		return 0, s.err
	}
	n := copy(p, s.chunk)
	s.chunk = s.chunk[n:]
	return n, nil
}

func (s *sectionReader) next() {
	if s.left == 0 {
		s.err = io.EOF
		return
	}
	kind, chunk, err := s.s.frame()
	if err == nil && (kind != s.kind || int64(len(chunk)) > s.left) {
		err = s.s.damaged("not the chunk that was there before")
	}
	if err != nil {
		s.err = fmt.Errorf("snapshot: read %s: %w", s.name, err)
		return
	}
	s.chunk, s.left = chunk, s.left-int64(len(chunk))
}

// Close makes later reads fail.
func (s *sectionReader) Close() error {
	s.err, s.chunk = fmt.Errorf("snapshot: read %s: %w", s.name, fs.ErrClosed), nil
	return nil
}
