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
	// Index and Term are the index and the term of the last entry in the snapshot.
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	// Created is the time at which the snapshot was created.
	Created time.Time `json:"created"`
	// Size is the size of the file, and DataSize the size of the state machine's data, in bytes.
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
	// RequestIDs is the number of stored request IDs. PruneIndex is the index before the entry
	// of the first of these IDs.
	RequestIDs int    `json:"requestIDs"`
	PruneIndex uint64 `json:"pruneIndex"`
	// Skipped contains the indexes of updates in the peer's log that were not applied.
	Skipped []uint64 `json:"skipped,omitempty"`
	// Elections contains the elections that have candidates or have ended.
	Elections []Election `json:"elections,omitempty"`
}

// Election is an election in a snapshot.
type Election struct {
	// Name is the name of the election.
	Name string `json:"name"`
	// Ended reports whether the election has ended.
	Ended bool `json:"ended,omitempty"`
	// Candidates contains the candidates in the order of succession.
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

// ReadSnapshot reads and verifies a snapshot file. The error wraps [ErrSnapshot] or an error of
// reading.
func ReadSnapshot(file string) (s Snapshot, err error) {
	r, err := snapshot.OpenFile(disk.OS(filepath.Dir(file)), filepath.Base(file))
	if err != nil {
		return Snapshot{}, err
	}
	defer r.Close()
	state, err := replica.Read(r.Tables())
	if err != nil {
		return Snapshot{}, err
	}
	m := r.Meta()
	s = Snapshot{
		Cluster: m.Cluster, Index: m.Index, Term: m.Term, Created: m.Created, Size: r.Size(), DataSize: r.DataSize(),
		Clock: state.Clock, Window: state.Window, ElectionTimeout: state.Election, Membership: state.Members.Membership(),
		RequestIDs: state.IDs.Len(), PruneIndex: state.PruneIndex(), Skipped: state.Skips,
	}
	for _, name := range state.Elections.Names() {
		queue := state.Elections.Get(name)
		if !queue.Ended && len(queue.Candidates) == 0 { // skip an election that was restarted and has no candidates
			continue
		}
		e := Election{Name: name, Ended: queue.Ended}
		for _, c := range queue.Candidates {
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
			found = append(found, name) // SnapshotName is first, because List sorts
		}
	}
	return found, nil
}
