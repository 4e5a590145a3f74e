// This file writes a new snapshot.

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

// errOver is what a Writer's methods return after Commit or Abort.
var errOver = fmt.Errorf("snapshot: already written or abandoned: %w", fs.ErrClosed)

// Writer writes a snapshot: first all of Tables, then all of Data, then Commit; any of the
// two may be left out. One goroutine uses it. After an error nothing but Abort makes sense.
type Writer struct {
	fs        disk.FS
	dir, name string
	meta      Meta
	f         disk.File
	at        int64
	crc       uint32
	kind      byte   // of chunk
	chunk     []byte // not written yet
	frame     []byte // room for one
	tables    int64
	data      int64
	err       error
}

// Create begins a snapshot in dir, which has to exist. The present one stays until Commit.
// api.ErrInvalid is for an index of 0, and for more of Meta than 1 MiB.
func Create(fs disk.FS, dir string, m Meta) (*Writer, error) {
	meta, err := m.marshal()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: snapshot of index %d: members: %w", api.ErrInvalid, m.Index, err)
	case m.Index == 0 || len(meta) > maxMeta:
		return nil, fmt.Errorf("%w: snapshot of index %d, with members and cluster of %d bytes; may be %d",
			api.ErrInvalid, m.Index, len(meta), maxMeta)
	}
	name, f, err := createTemp(fs, dir)
	if err != nil {
		return nil, fmt.Errorf("snapshot: create a file in %s: %w", dir, err)
	}
	w := &Writer{fs: fs, dir: dir, name: name, meta: m, f: f}
	w.frame, w.crc = appendHead(nil)
	w.write(w.frame)
	w.writeFrame(kindMeta, meta)
	if w.err != nil {
		err := w.err
		w.Abort()
		return nil, err
	}
	return w, nil
}

// createTemp makes a temporary file of a name that no other has.
func createTemp(fsys disk.FS, dir string) (string, disk.File, error) {
	for n := 1; ; n++ {
		name := path.Join(dir, fmt.Sprint(tempPrefix, n))
		f, err := fsys.Create(name)
		if !errors.Is(err, fs.ErrExist) {
			return name, f, err
		}
	}
}

// isTemp tells whether a file of that name in the directory is one of createTemp's.
func isTemp(name string) bool {
	n, ok := strings.CutPrefix(name, tempPrefix)
	return ok && n != "" && strings.Trim(n, "0123456789") == ""
}

// removeTemps removes what a crash has left of snapshots that were not complete.
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

// Tables takes the tables that go with the state machine. It fails once Data was written to.
func (w *Writer) Tables() io.Writer { return sectionWriter{w, kindTables} }

// Data takes the state machine's data.
func (w *Writer) Data() io.Writer { return sectionWriter{w, kindData} }

type sectionWriter struct {
	w    *Writer
	kind byte
}

func (s sectionWriter) Write(p []byte) (int, error) {
	w := s.w
	if s.kind < w.kind && w.err == nil {
		w.err = errors.New("snapshot: write to tables after data: tables come first")
	}
	if s.kind != w.kind {
		w.flush()
		w.kind = s.kind
	}
	written := 0
	for len(p) > 0 && w.err == nil {
		n := min(len(p), maxChunk-len(w.chunk))
		w.chunk = append(w.chunk, p[:n]...)
		if p = p[n:]; len(w.chunk) == maxChunk {
			w.flush()
		}
		if w.err == nil {
			written += n
		}
	}
	return written, w.err
}

// flush writes the chunk, if there is one.
func (w *Writer) flush() {
	if len(w.chunk) == 0 {
		return
	}
	if w.kind == kindTables {
		w.tables += int64(len(w.chunk))
	} else {
		w.data += int64(len(w.chunk))
	}
	w.writeFrame(w.kind, w.chunk)
	w.chunk = w.chunk[:0]
}

func (w *Writer) writeFrame(kind byte, payload []byte) {
	w.frame, w.crc = appendFrame(w.frame[:0], w.crc, kind, payload)
	w.write(w.frame)
}

func (w *Writer) write(p []byte) {
	if w.err != nil {
		return
	}
	n, err := w.f.WriteAt(p, w.at)
	w.at += int64(n)
	if err != nil {
		w.err = fmt.Errorf("snapshot: write %s: %w", w.name, err)
	}
}

// Commit makes this the newest snapshot, durably, and what was that a backup. Nothing has
// changed after ErrOlder, ErrOtherCluster and after errors of writing. After an error of
// making the change durable, the old or the new one will be found by Open. In any case
// the Writer is at its end.
func (w *Writer) Commit() error {
	w.flush()
	w.writeFrame(kindEnd, appendEnd(nil, w.tables, w.data, w.at+endSize+overhead))
	if w.err != nil {
		err := w.err
		w.Abort()
		return err
	}
	w.err = errOver
	err := w.f.Sync()
	if err != nil {
		err = fmt.Errorf("snapshot: sync %s: %w", w.name, err)
	}
	if closed := w.f.Close(); err == nil && closed != nil {
		err = fmt.Errorf("snapshot: close %s: %w", w.name, closed)
	}
	if err == nil {
		err = replace(w.fs, w.dir, w.name, w.meta)
	}
	if err != nil {
		w.fs.Remove(w.name) // it is gone if it was renamed; Open removes it otherwise
	}
	return err
}

// Abort gives the snapshot up and removes its file. After Commit it does nothing. Open
// removes what Abort cannot.
func (w *Writer) Abort() {
	if errors.Is(w.err, errOver) {
		return
	}
	w.err = errOver
	w.f.Close()
	w.fs.Remove(w.name)
}
