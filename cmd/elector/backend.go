package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection"
)

// backend is what elections stand on. It may be a lister, a watcher, an ender and a
// deleter too.
type backend interface {
	// candidate makes a candidate; it waits for the backend until ctx is done.
	candidate(ctx context.Context) (leaderelection.Candidate, error)
	// close gives up what open has taken, within seconds.
	close()
}

// backends are how to open each kind. A new one is a line here, and its flags in
// settings.
var backends = map[string]func(*settings) (backend, error){
	"zookeeper": openZooKeeper,
}

func backendNames() string {
	return strings.Join(slices.Sorted(maps.Keys(backends)), ", ")
}

func (s *settings) open() (backend, error) {
	open := backends[s.backend]
	switch {
	case s.backend == "":
		return nil, usage("--backend is required: one of %s", backendNames())
	case open == nil:
		return nil, usage("--backend %s: not one of %s", s.backend, backendNames())
	}
	return open(s)
}
