// Package memory implements a [changefeed.Store] inside the process, for tests and
// demonstrations, and as a model for other stores. The data does not outlive the process.
package memory

import (
	"strconv"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// Table holds records of elections and other data, each under a key. Its methods may be
// called from any goroutine.
type Table struct {
	mu      sync.Mutex
	writes  uint64 // writes is the number of writes of all records, from which versions are made.
	records map[string]changefeed.Record
	watches map[chan changefeed.Event]string // watches maps the channel of each watch to the key of its record.
	changes map[*func(change any)]struct{}   // changes contains the functions that pass changes to feeds. They do not block.
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{
		records: map[string]changefeed.Record{},
		watches: map[chan changefeed.Event]string{}, changes: map[*func(change any)]struct{}{},
	}
}

// Change is a change of other data, as delivered by [Store.Changes].
type Change struct {
	Key   string
	Value any
}

// Put delivers a change of other data to all watchers of the table. The table does not
// store the value.
func (t *Table) Put(key string, value any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for report := range t.changes {
		(*report)(Change{key, value})
	}
}

// Lose deletes the record under key, as if its table had been dropped.
func (t *Table) Lose(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.records, key)
	t.notify(key)
}

// event returns the current state of the record under key. The caller must hold mu.
func (t *Table) event(key string) changefeed.Event {
	r, ok := t.records[key]
	return changefeed.Event{Record: r, Missing: !ok}
}

// write stores r, and returns it with a new version and the current time. No version is used twice, so a record
// that is created again never has a version of the lost one. The caller must hold mu.
func (t *Table) write(key string, r changefeed.Record) changefeed.Record {
	t.writes++
	r.Version = strconv.FormatUint(t.writes, 10)
	r.Time = time.Now().Round(0)
	t.records[key] = r
	t.notify(key)
	return r
}

// notify informs the watches of the record under key. The caller must hold mu.
func (t *Table) notify(key string) {
	for watch, watched := range t.watches {
		if watched == key {
			limit.SendNewest(watch, t.event(key))
		}
	}
}
