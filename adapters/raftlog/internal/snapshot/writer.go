package snapshot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

const tempPrefix = Name + ".tmp-"

// errFinished is returned by the methods of a Writer after Commit or Abort.
var errFinished = fmt.Errorf("snapshot: already written or abandoned: %w", fs.ErrClosed)

// Writer writes a snapshot: first Tables, then Data, then Commit. Tables and Data may be omitted. Only
// one goroutine may use a Writer. After an error, the caller must call Abort.
type Writer struct {
	fs         disk.FS
	dir, name  string
	meta       Meta
	file       disk.File
	offset     int64
	crc        uint32
	kind       byte
	chunk      []byte // the bytes of the current section that are not written to the file yet
	buffer     []byte // the frame that is being written
	tablesSize int64
	dataSize   int64
	err        error
}

// Create begins to write a snapshot in dir, which must exist. The current snapshot is not changed
// before Commit. The error wraps api.ErrInvalid if the index is 0 or the metadata is larger than 1 MiB.
func Create(fs disk.FS, dir string, m Meta) (*Writer, error) {
	meta, err := m.encode()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: encode the members in the snapshot of index %d: %w", api.ErrInvalid, m.Index, err)
	case m.Index == 0 || len(meta) > maxMeta:
		return nil, fmt.Errorf("%w: the members and the cluster in the snapshot of index %d have %d bytes, the limit is %d",
			api.ErrInvalid, m.Index, len(meta), maxMeta)
	}
	name, f, err := createTemp(fs, dir)
	if err != nil {
		return nil, fmt.Errorf("snapshot: create a file in %s: %w", dir, err)
	}
	w := &Writer{fs: fs, dir: dir, name: name, meta: m, file: f}
	w.buffer, w.crc = appendFileHead(nil)
	w.writeBytes(w.buffer)
	w.writeFrame(kindMeta, meta)
	if w.err != nil {
		err := w.err
		w.Abort()
		return nil, err
	}
	return w, nil
}

// createTemp creates a temporary file in dir, under a name that is not used yet.
func createTemp(fsys disk.FS, dir string) (string, disk.File, error) {
	for n := 1; ; n++ {
		name := path.Join(dir, fmt.Sprint(tempPrefix, n))
		f, err := fsys.Create(name)
		if err == nil {
			f = &steadyFile{File: f}
		}
		if !errors.Is(err, fs.ErrExist) {
			return name, f, err
		}
	}
}

// syncInterval is the number of bytes after which a file is synced while it is written. Otherwise the
// system would collect writes in memory, and a sync of the log would wait until gigabytes of a snapshot
// are on the disk.
const syncInterval = 1 << 20

// steadyFile is a file that is synced whenever syncInterval more bytes were written.
type steadyFile struct {
	disk.File
	unsynced int
}

func (f *steadyFile) WriteAt(p []byte, offset int64) (int, error) {
	n, err := f.File.WriteAt(p, offset)
	if f.unsynced += n; err == nil && f.unsynced >= syncInterval {
		f.unsynced = 0
		err = f.Sync()
	}
	return n, err
}

// isTemp reports whether name has the form of the names of createTemp.
func isTemp(name string) bool {
	n, ok := strings.CutPrefix(name, tempPrefix)
	return ok && n != "" && strings.Trim(n, "0123456789") == ""
}

// removeTemps removes the incomplete snapshots that a crash has left in dir.
func removeTemps(fs disk.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("snapshot: list %s: %w", dir, err)
	}
	for _, name := range names {
		if isTemp(name) {
			if err := fs.Remove(path.Join(dir, name)); err != nil {
				return fmt.Errorf("snapshot: remove files left by a crash: %w", err)
			}
		}
	}
	return nil
}

// Tables returns a writer of the tables in the snapshot. Its Write returns an error after data was written to
// Data.
func (w *Writer) Tables() io.Writer { return sectionWriter{w, kindTables} }

// Data returns a writer of the state machine's data in the snapshot.
func (w *Writer) Data() io.Writer { return sectionWriter{w, kindData} }

type sectionWriter struct {
	writer *Writer
	kind   byte
}

func (s sectionWriter) Write(p []byte) (int, error) {
	w := s.writer
	if s.kind < w.kind && w.err == nil {
		w.err = errors.New("snapshot: write to tables after data: tables come first")
	}
	if s.kind != w.kind {
		w.flushChunk()
		w.kind = s.kind
	}
	written := 0
	for len(p) > 0 && w.err == nil {
		n := min(len(p), maxChunk-len(w.chunk))
		w.chunk = append(w.chunk, p[:n]...)
		if p = p[n:]; len(w.chunk) == maxChunk {
			w.flushChunk()
		}
		if w.err == nil {
			written += n
		}
	}
	return written, w.err
}

// flushChunk writes the collected payload as a frame, unless it is empty.
func (w *Writer) flushChunk() {
	if len(w.chunk) == 0 {
		return
	}
	if w.kind == kindTables {
		w.tablesSize += int64(len(w.chunk))
	} else {
		w.dataSize += int64(len(w.chunk))
	}
	w.writeFrame(w.kind, w.chunk)
	w.chunk = w.chunk[:0]
}

func (w *Writer) writeFrame(kind byte, payload []byte) {
	w.buffer, w.crc = appendFrame(w.buffer[:0], w.crc, kind, payload)
	w.writeBytes(w.buffer)
}

func (w *Writer) writeBytes(p []byte) {
	if w.err != nil {
		return
	}
	n, err := w.file.WriteAt(p, w.offset)
	w.offset += int64(n)
	if err != nil {
		w.err = fmt.Errorf("snapshot: write %s: %w", w.name, err)
	}
}

// Commit makes this snapshot the newest one, durably, and keeps the current one as a backup. After
// ErrOlder, ErrOtherCluster and errors of writing, nothing has changed. After an error that concerns
// the durability of the change, Open finds either the old or the new snapshot. The Writer cannot be
// used after Commit.
func (w *Writer) Commit() error {
	w.flushChunk()
	w.writeFrame(kindEnd, appendEnd(nil, w.tablesSize, w.dataSize, w.offset+endSize+frameOverhead))
	if w.err != nil {
		err := w.err
		w.Abort()
		return err
	}
	w.err = errFinished
	err := w.file.Sync()
	if err != nil {
		err = fmt.Errorf("snapshot: sync %s: %w", w.name, err)
	}
	if closed := w.file.Close(); err == nil && closed != nil {
		err = fmt.Errorf("snapshot: close %s: %w", w.name, closed)
	}
	if err == nil {
		err = replaceCurrent(w.fs, w.dir, w.name, w.meta)
	}
	if err != nil {
		w.fs.Remove(w.name) // fails if Commit has renamed the file; otherwise Open removes the file later
	}
	return err
}

// Abort discards the snapshot and removes its file. If the removal fails, Open removes the file later.
// After Commit, Abort does nothing.
func (w *Writer) Abort() {
	if errors.Is(w.err, errFinished) {
		return
	}
	w.err = errFinished
	w.file.Close()
	w.fs.Remove(w.name)
}
