package offline

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// ErrSnapshot: a file is no whole and undamaged snapshot.
var ErrSnapshot = snapshot.ErrCorrupt

// SnapshotName is the newest snapshot in a peer's folder.
const SnapshotName = snapshot.Name

// Snapshot says what a snapshot has, but for the state machine's data.
type Snapshot struct {
	Cluster string `json:"cluster"`
	// Index and Term are of the last entry in it.
	Index   uint64    `json:"index"`
	Term    uint64    `json:"term"`
	Created time.Time `json:"created"`
	// Size is the file's, DataSize that of the state machine's data, in bytes.
	Size     int64 `json:"size"`
	DataSize int64 `json:"dataSize"`

	// Clock is the newest time that a leader has written, by which IDs become stale.
	Clock           time.Time      `json:"clock"`
	Window          time.Duration  `json:"window"` // for how long IDs are fresh
	ElectionTimeout time.Duration  `json:"electionTimeout"`
	Membership      api.Membership `json:"membership"`
	// RequestIDs is how many are remembered, and PruneIndex that before the first of them.
	RequestIDs int        `json:"requestIDs"`
	PruneIndex uint64     `json:"pruneIndex"`
	Skipped    []uint64   `json:"skipped,omitempty"` // updates in the peer's log that were not applied
	Elections  []Election `json:"elections,omitempty"`
}

// Election is one of the elections that the log keeps.
type Election struct {
	Name       string      `json:"name"`
	Ended      bool        `json:"ended,omitempty"`
	Candidates []Candidate `json:"candidates,omitempty"` // in order of succession
}

// Candidate stands in an election.
type Candidate struct {
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`
	Joined uint64 `json:"joined"`          // index of the entry by which it stands there
	Token  uint64 `json:"token,omitempty"` // its fencing token, of the first one
}

// ReadSnapshot reads all of a snapshot's file and verifies it. The error wraps ErrSnapshot,
// or is of reading.
func ReadSnapshot(file string) (s Snapshot, err error) {
	r, err := snapshot.OpenFile(disk.OS(filepath.Dir(file)), filepath.Base(file))
	if err != nil {
		return Snapshot{}, err
	}
	defer r.Close()
	tables, err := replica.Read(r.Tables())
	if err != nil {
		return Snapshot{}, err
	}
	m := r.Meta()
	s = Snapshot{
		Cluster: m.Cluster, Index: m.Index, Term: m.Term, Created: m.Created, Size: r.Size(), DataSize: r.DataSize(),
		Clock: tables.Clock, Window: tables.Window, ElectionTimeout: tables.Election, Membership: tables.Members.Public(),
		RequestIDs: tables.IDs.Len(), PruneIndex: tables.PruneIndex(), Skipped: tables.Skips,
	}
	for _, name := range tables.Lines.Names() {
		line := tables.Lines.Line(name)
		if !line.Ended && len(line.Candidates) == 0 { // it was ended once, and nobody stands in it
			continue
		}
		e := Election{Name: name, Ended: line.Ended}
		for _, c := range line.Candidates {
			e.Candidates = append(e.Candidates, Candidate{c.ID, c.Name, c.Joined, c.Token})
		}
		s.Elections = append(s.Elections, e)
	}
	return s, nil
}

// Snapshots are the names of the snapshots in a peer's folder: the newest one first, then
// those that are kept from before, in order of their names.
func Snapshots(dir string) ([]string, error) {
	names, err := disk.OS(dir).List(".")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, name := range names {
		if name == SnapshotName || strings.HasPrefix(name, SnapshotName+"-") && strings.HasSuffix(name, ".bak") {
			found = append(found, name) // sorted, and the shortest first
		}
	}
	return found, nil
}
