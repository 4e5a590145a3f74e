// Package offline reads the files of a raftlog peer. It does not change or lock them. The peer may be
// running: the result of a read may lack the entries that the peer writes during the read.
//
// Use raftlog.CompactOffline to create a snapshot from such files.
package offline

import (
	"errors"
	"fmt"
	"path/filepath"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// Errors of this package, to be tested with errors.Is, in addition to io/fs.ErrNotExist if
// a file does not exist.
var (
	// ErrCorrupt is returned if a log is damaged. The error names the position and the
	// remedy.
	ErrCorrupt = filelog.ErrCorrupt
	// ErrMalformed is returned if an entry is not damaged, but this version cannot decode it.
	ErrMalformed = replica.ErrMalformed
	// ErrDirectory is returned if the format of a directory is unknown to this version of the
	// program, or its file peer.json is damaged.
	ErrDirectory = errors.New("the directory cannot be used")
)

// LogDir is the directory of the log, below the directory of a peer.
const LogDir = "log"

// Owner identifies the peer to which a directory belongs.
type Owner struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Peer is the ID of the peer.
	Peer string `json:"peer"`
}

// ReadOwner returns the owner of a peer's directory. The error wraps io/fs.ErrNotExist if dir is not the
// directory of a peer, or [ErrDirectory].
func ReadOwner(dir string) (Owner, error) {
	o, err := identity.ReadOwner(disk.OS(dir))
	switch {
	case errors.Is(err, identity.ErrFormat), errors.Is(err, identity.ErrDamaged):
		return Owner{}, fmt.Errorf("%w %s: %w", ErrDirectory, dir, err)
	case err != nil:
		return Owner{}, fmt.Errorf("directory %s: %w", dir, err)
	}
	return Owner{Cluster: o.Cluster, Peer: o.Peer}, nil
}

// Entry is an entry of the log and its position in the files.
type Entry struct {
	// Entry has Data for all kinds of entries, and never Skipped, because Skipped depends on all previous
	// entries.
	api.Entry
	// Committed reports whether the files show that the entry is committed. If not, the entry may have
	// been committed nevertheless, or may be replaced.
	Committed bool
	// File is the name of the segment in the directory of the log.
	File string
	// Offset is the position of the entry in File, in bytes.
	Offset int64
	// Size is the size of the entry in bytes, without the headers of the log.
	Size int
}

// Entries calls visit for each entry of the log in a peer's directory, in order, including truncated
// entries whose files still exist. If visit returns an error, Entries stops and returns it. Other
// errors wrap [ErrCorrupt], [ErrMalformed], or an error of reading.
func Entries(dir string, visit func(Entry) error) error {
	_, err := filelog.History(disk.OS(dir), LogDir, func(r filelog.Record, committed bool) error {
		d, err := replica.DecodeEntry(&raftpb.Entry{Index: &r.Index, Term: &r.Term, Type: &r.Type, Data: r.Data})
		if err != nil {
			return fmt.Errorf("%s, offset %d: %w", filepath.Join(dir, LogDir, r.File), r.Offset, err)
		}
		e := Entry{Entry: d.Entry(), Committed: committed, File: r.File, Offset: r.Offset, Size: r.Size}
		e.Data = d.Text()
		return visit(e)
	})
	return err
}

// Log describes the extent and the files of a log.
type Log struct {
	// First and Last are the indexes of the first and the last entry on the disk, or 0 for an
	// empty log.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// Commit is the index of the last entry that is known to be committed.
	Commit uint64 `json:"commit"`
	// Compacted is the index of the last entry that the peer no longer needs because a
	// snapshot contains it.
	Compacted uint64 `json:"compacted"`
	// Segments are the files of the log, in order.
	Segments []Segment `json:"segments"`
}

// Segment is a file of the log.
type Segment struct {
	// Name is the name of the file.
	Name string `json:"name"`
	// First and Last are the indexes of the valid entries in the file, or 0 if there are none.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// Entries is the number of entries in the file.
	Entries int `json:"entries"`
	// Replaced is the number of entries in the file that were replaced by later ones.
	Replaced int `json:"replaced"`
	// Used is the number of bytes of the file that contain records; the rest is reserved.
	Used int64 `json:"used"`
	// Sealed reports whether nothing more is written to the file.
	Sealed bool `json:"sealed"`
}

// ReadLog returns a description of the log in a peer's directory. Errors are those of
// [Entries].
func ReadLog(dir string) (Log, error) {
	fsys := disk.OS(dir)
	var l Log
	positions := map[string]int{}
	if err := filelog.Scan(fsys, LogDir, func(r filelog.Record) error {
		i, known := positions[r.File]
		if !known {
			i = len(l.Segments)
			positions[r.File] = i
			l.Segments = append(l.Segments, Segment{Name: r.File, Sealed: true})
		}
		s := &l.Segments[i]
		s.Used = r.End
		if r.Kind == filelog.KindEntry {
			s.Replaced++ // count the entry as replaced; the call of History below decrements the count if it is valid
		}
		return nil
	}); err != nil {
		return l, err
	}
	if n := len(l.Segments); n > 0 {
		l.Segments[n-1].Sealed = false
	}
	extent, err := filelog.History(fsys, LogDir, func(r filelog.Record, _ bool) error {
		i, known := positions[r.File]
		if !known {
			return nil // skip the entry, because its file was created after Scan
		}
		s := &l.Segments[i]
		if s.Entries++; s.First == 0 {
			s.First = r.Index
		}
		s.Last = r.Index
		s.Replaced = max(0, s.Replaced-1)
		return nil
	})
	l.First, l.Last, l.Commit, l.Compacted = extent.First, extent.Last, extent.Commit, extent.Mark
	return l, err
}

// Prunable returns the files whose entries have at most the index through, which are not needed when
// the log is truncated up to it. The names are sorted from the oldest to the newest file, and the
// files must be deleted in this order.
func (l Log) Prunable(through uint64) []string {
	var names []string
	for _, s := range l.Segments {
		if !s.Sealed || s.Last > through {
			break
		}
		names = append(names, filepath.Join(LogDir, s.Name))
	}
	return names
}
