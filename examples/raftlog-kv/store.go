package main

// The state machine: a map that every peer reckons from the same updates in the same order.

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

// update is what is proposed, as JSON.
type update struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Delete bool   `json:"delete,omitempty"`
}

// store is in memory: it is restored from the newest snapshot and the log behind it. The
// node's goroutine changes it, and others read, so there is a lock.
type store struct {
	mu     sync.RWMutex
	values map[string]string
	writes int // how many updates were applied
}

func newStore() *store { return &store{values: map[string]string{}} }

// LastApplied implements raftlog.StateMachine: nothing of before is left in memory.
func (s *store) LastApplied() (uint64, error) { return 0, nil }

// Apply must do the same at every peer: it looks at nothing but the map and the update. An
// error would stop the peer, so what is no update is left out, by all of them alike.
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

// image is a copy of a store, as a snapshot has it.
type image struct {
	Values map[string]string
	Writes int
}

// Snapshot copies the map, to be written while updates go on.
func (s *store) Snapshot() (io.WriterTo, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return image{maps.Clone(s.values), s.writes}, nil
}

func (i image) WriteTo(w io.Writer) (int64, error) {
	text, err := json.Marshal(i)
	if err != nil {
		return 0, err
	}
	n, err := w.Write(text)
	return int64(n), err
}

// Restore replaces the map by what Snapshot has written.
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

// get reads what this peer has applied; Node.Sync before it makes that the newest.
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
