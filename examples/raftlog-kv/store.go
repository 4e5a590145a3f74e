package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// update is a proposed update, as JSON.
type update struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Delete bool   `json:"delete,omitempty"`
}

// store is the state machine: a map in memory. Each peer applies the same updates in the same order. When
// a peer starts, it restores the map from the newest snapshot and the entries after it. The lock is
// required because the goroutine of the node changes the map, while other goroutines read it.
type store struct {
	mu     sync.RWMutex
	values map[string]string
	writes int // number of applied updates
}

func newStore() *store { return &store{values: map[string]string{}} }

// LastApplied returns 0, because the map is empty when the process starts.
func (s *store) LastApplied() (uint64, error) { return 0, nil }

// Apply must have the same effect at each peer, so it depends only on the map and the entries. An error
// would stop the peer, so all peers ignore data that is not an update.
func (s *store) Apply(entries []api.Entry, _ uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		var u update
		if json.Unmarshal(e.Data, &u) != nil {
			continue
		}
		s.writes++
		if u.Delete {
			delete(s.values, u.Key)
		} else {
			s.values[u.Key] = u.Value
		}
	}
	return nil
}

// image is the copy of a store that a snapshot contains.
type image struct {
	Values map[string]string
	Writes int
}

// Snapshot copies the map. The copy is written while further updates are applied.
func (s *store) Snapshot() (io.WriterTo, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return image{maps.Clone(s.values), s.writes}, nil
}

// WriteTo writes the copy as JSON.
func (i image) WriteTo(w io.Writer) (int64, error) {
	text, err := json.Marshal(i)
	if err != nil {
		return 0, err
	}
	n, err := w.Write(text)
	return int64(n), err
}

// Restore replaces the map by the data of a snapshot.
func (s *store) Restore(_ uint64, r io.Reader) error {
	i := image{Values: map[string]string{}}
	if err := json.NewDecoder(r).Decode(&i); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values, s.writes = i.Values, i.Writes
	return nil
}

// get returns the value of a key according to the updates that this peer has applied. To read the newest
// value, call Node.Sync before.
func (s *store) get(key string) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	value, ok := s.values[key]
	return value, ok
}

func (s *store) String() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []string
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		all = append(all, key+"="+s.values[key])
	}
	return fmt.Sprintf("%s (%d writes)", strings.Join(all, " "), s.writes)
}
