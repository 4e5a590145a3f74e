//go:build unix

package dbserver

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// Shared is a server that all tests of a package use. The first call of Get starts it.
type Shared struct {
	Start func() (*Server, error)

	once   sync.Once
	server *Server
	err    error
}

// Get returns the server. If the database is not installed, it skips the test, or fails it as
// [testenv.SkipMissing] does.
func (s *Shared) Get(t testing.TB) *Server {
	t.Helper()
	s.once.Do(func() { s.server, s.err = s.Start() })
	switch {
	case errors.Is(s.err, ErrMissing):
		testenv.SkipMissing(t, "the database", s.err)
	case s.err != nil:
		t.Fatalf("the server does not start: %v", s.err)
	}
	return s.server
}

// Tests returns a wrapper of m whose Run closes the server after the tests.
func (s *Shared) Tests(m *testing.M) interface{ Run() int } { return closingRunner{m, s} }

type closingRunner struct {
	m      *testing.M
	shared *Shared
}

func (r closingRunner) Run() int {
	code := r.m.Run()
	if r.shared.server == nil {
		return code
	}
	if err := r.shared.server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}
