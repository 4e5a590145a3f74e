// Package offline reads what a peer of a raft log has on its disk, as it lies there. It
// changes nothing and takes no lock: the peer may run meanwhile, and what it writes while
// something is read is there or not. So anything may be missing at the end, and nothing
// before it.
//
// To make a snapshot of such files is raftlog.CompactOffline.
package offline

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"go.etcd.io/raft/v3/raftpb"
)

// The errors, for errors.Is, besides io/fs.ErrNotExist where there is nothing.
var (
	// ErrCorrupt: a log is damaged. The error says where, and what to do.
	ErrCorrupt = filelog.ErrCorrupt
	// ErrMalformed: an entry is whole, and means nothing to this program.
	ErrMalformed = entry.ErrMalformed
)

// LogDir is the folder of the log, in that of a peer.
const LogDir = "log"

// Owner says whose folder one is.
type Owner struct {
	Cluster string `json:"cluster"`
	Peer    string `json:"peer"` // its ID
}

// ReadOwner reads whose folder that is.
func ReadOwner(dir string) (o Owner, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "peer.json"))
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("%s: %w", filepath.Join(dir, "peer.json"), err)
	}
	return o, nil
}

// Entry is an entry of the log, and where it is.
type Entry struct {
	// Entry has Data for Control entries too, and never Skipped: that takes all the entries
	// before it to know.
	api.Entry
	// Committed is whether the files say so. An entry of which they do not may be replaced
	// yet, or be committed all the same.
	Committed bool
	// File is a segment, in the log's folder.
	File   string
	Offset int64
	// Size is what the entry takes without the log's own headers, in bytes.
	Size int
}

// Entries calls do with every entry of the log in a peer's folder, in order: with all that are
// on the disk, compacted or not. The error is do's, which ends it, ErrCorrupt, ErrMalformed,
// or of reading.
func Entries(dir string, do func(Entry) error) error {
	_, err := filelog.History(disk.OS(dir), LogDir, func(r filelog.Record, committed bool) error {
		d, err := entry.Decode(&raftpb.Entry{Index: &r.Index, Term: &r.Term, Type: &r.Type, Data: r.Data})
		if err != nil {
			return fmt.Errorf("%s, offset %d: %w", filepath.Join(dir, LogDir, r.File), r.Offset, err)
		}
		e := Entry{Entry: d.Entry(), Committed: committed, File: r.File, Offset: r.Offset, Size: r.Size}
		e.Data = d.Data
		return do(e)
	})
	return err
}

// Log says how far a log goes, and of what files it is.
type Log struct {
	// First and Last are of the entries on the disk; 0 without any.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// Commit is through which entries are known to be committed.
	Commit uint64 `json:"commit"`
	// Compacted is through which entries the peer does without: a snapshot has them.
	Compacted uint64    `json:"compacted"`
	Segments  []Segment `json:"segments"`
}

// Segment is a file of the log.
type Segment struct {
	Name string `json:"name"`
	// First and Last are of the entries in it that count; 0 if all were replaced, or it has
	// none.
	First   uint64 `json:"first"`
	Last    uint64 `json:"last"`
	Entries int    `json:"entries"`
	// Replaced is how many entries in it were replaced by later ones.
	Replaced int `json:"replaced"`
	// Used is how many bytes are written, of those that are reserved.
	Used int64 `json:"used"`
	// Sealed is whether nothing is written to it any more.
	Sealed bool `json:"sealed"`
}

// ReadLog reads the log in a peer's folder. Errors are those of [Entries].
func ReadLog(dir string) (Log, error) {
	fsys := disk.OS(dir)
	var l Log
	at := map[string]int{}
	if err := filelog.Scan(fsys, LogDir, func(r filelog.Record) error {
		i, known := at[r.File]
		if !known {
			i = len(l.Segments)
			at[r.File] = i
			l.Segments = append(l.Segments, Segment{Name: r.File, Sealed: true})
		}
		s := &l.Segments[i]
		s.Used = r.Offset
		if r.Kind == filelog.KindEntry {
			s.Replaced++ // until it is known to count
			s.Used += int64(r.Size)
		}
		return nil
	}); err != nil {
		return l, err
	}
	if n := len(l.Segments); n > 0 {
		l.Segments[n-1].Sealed = false
	}
	extent, err := filelog.History(fsys, LogDir, func(r filelog.Record, _ bool) error {
		i, known := at[r.File]
		if !known {
			return nil // younger than the first look
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

// Prunable are the files that hold only entries through that index, and that are not needed
// when the log is compacted so far; the oldest first, in which order they may be deleted.
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
