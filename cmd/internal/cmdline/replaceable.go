package cmdline

import (
	"fmt"
	"os"
	"sync"
)

// replaceable contains the content of files that operators may replace at any time. The methods can be called
// concurrently.
type replaceable[T any] struct {
	flags string // flags contains the names of the flags that set the files, for errors.
	files []string
	// read reads the files. Its errors begin with the name of the flag. The warning is not empty if all users can
	// read a file that is private. mu is held while it runs.
	read func() (content *T, warning string, err error)
	// replaced is called after read has returned content that replaces earlier content. mu is held while it runs.
	// replaced may be nil.
	replaced func(before, after *T)

	mu      sync.Mutex
	loaded  *T
	states  []os.FileInfo // the states of the files when loaded was read
	warning string        // the warning that read returned with loaded
}

// load returns the content of the files. It reads the files only if they have changed since the last call. If they
// cannot be read, load returns the error and the content that was read last, or nil. While a certificate and its key
// are being replaced, they may not match for a moment.
func (r *replaceable[T]) load() (*T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	states := make([]os.FileInfo, len(r.files))
	changed := r.loaded == nil
	for i, name := range r.files {
		state, err := os.Stat(name) // look at the file before it is read, so that the next call notices a later change
		if err != nil {
			return r.loaded, fmt.Errorf("%s: %w", r.flags, err)
		}
		states[i], changed = state, changed || !equalStates(state, r.states[i])
	}
	if !changed {
		return r.loaded, nil
	}
	content, warning, err := r.read()
	if err != nil {
		return r.loaded, err
	}
	before := r.loaded
	r.loaded, r.states, r.warning = content, states, warning
	if before != nil && r.replaced != nil {
		r.replaced(before, content)
	}
	return r.loaded, nil
}

// equalStates reports whether a file is unchanged between the calls of Stat that returned a and b.
func equalStates(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
}
