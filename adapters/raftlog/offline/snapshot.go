package offline

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/snapshot"
)

// ErrSnapshot is returned if a file is not a complete and undamaged snapshot.
var ErrSnapshot = snapshot.ErrCorrupt

// SnapshotName is the name of the newest snapshot in a peer's directory.
const SnapshotName = snapshot.Name

// Snapshot describes a snapshot, without the state machine's data.
type Snapshot struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Index and Term are those of the last entry in the snapshot.
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	// Created is when the snapshot was created.
	Created time.Time `json:"created"`
	// Size is the size of the file, and DataSize that of the state machine's data, in
	// bytes.
	Size     int64 `json:"size"`
	DataSize int64 `json:"dataSize"`

	// Clock is the newest timestamp that a leader has written. It determines which IDs are
	// outside the deduplication window.
	Clock time.Time `json:"clock"`
	// Window is the deduplication window.
	Window time.Duration `json:"window"`
	// ElectionTimeout is the election timeout of the cluster.
	ElectionTimeout time.Duration `json:"electionTimeout"`
	// Membership lists the peers as of Index.
	Membership api.Membership `json:"membership"`
	// RequestIDs is the number of remembered IDs, and PruneIndex the index before the entry
	// of the first of them.
	RequestIDs int    `json:"requestIDs"`
	PruneIndex uint64 `json:"pruneIndex"`
	// Skipped are the indexes of updates in the peer's log that were not applied.
	Skipped []uint64 `json:"skipped,omitempty"`
	// Elections are the elections that the log keeps.
	Elections []Election `json:"elections,omitempty"`
}

// Election is an election that the log keeps.
type Election struct {
	// Name is the name of the election.
	Name string `json:"name"`
	// Ended reports whether the election has ended.
	Ended bool `json:"ended,omitempty"`
	// Candidates are its candidates, in the order of succession.
	Candidates []Candidate `json:"candidates,omitempty"`
}

// Candidate is a candidate in an election.
type Candidate struct {
	// ID is the ID of the candidate.
	ID string `json:"id"`
	// Name is the client name of the candidate.
	Name string `json:"name,omitempty"`
	// Joined is the index of the entry by which the candidate has joined.
	Joined uint64 `json:"joined"`
	// Token is the fencing token. It is set for the first candidate.
	Token uint64 `json:"token,omitempty"`
}

// ReadSnapshot reads and verifies a snapshot file. The error wraps [api.ErrSnapshot], or is an
// error of reading.
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
		Clock: tables.Clock, Window: tables.Window, ElectionTimeout: tables.Election, Membership: tables.Members.Membership(),
		RequestIDs: tables.IDs.Len(), PruneIndex: tables.PruneIndex(), Skipped: tables.Skips,
	}
	for _, name := range tables.Elections.Names() {
		line := tables.Elections.Get(name)
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

// Snapshots returns the names of the snapshots in a peer's directory: the newest one first,
// then earlier ones that are kept, sorted by name.
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
