// Package secretfile reads the secrets of a Raft log from files that can be replaced at any time, for the
// commands elector and raftlog.
package secretfile

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

const (
	// minSize is the minimum length of a secret in bytes. A process that reaches the port of a peer can
	// guess shorter ones.
	minSize = 16
	// maxSecrets is the maximum number of secrets: the one that is used and, during a change, the other.
	maxSecrets = 2
)

// Secrets contains the secrets of one role, at most two. The first is used for connections that this
// process makes, and both are accepted. Its methods can be called concurrently.
type Secrets struct {
	flag, file string
	log        *slog.Logger

	mu     sync.Mutex
	loaded [][]byte
	state  os.FileInfo // of the file when loaded was read
	logged string      // the last error
}

// Read reads the secrets from a file, each on a line of its own, or from value if file is empty. It returns
// nil if both are empty. Errors, and the warning, which is not empty if all users can read the file, are
// about the file of the flag; the name of the flag precedes errors. If the file was changed later, and
// cannot be read then, log receives an error; log may be nil.
func Read(flag, file, value string, log *slog.Logger) (s *Secrets, warning string, err error) {
	s = &Secrets{flag: flag, file: file, log: log}
	switch {
	case file == "" && value == "":
		return nil, "", nil
	case file == "":
		s.loaded, err = parse([]byte(value))
	default:
		warning, err = s.load()
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", flag, err)
	}
	return s, warning, nil
}

// Current returns the secrets. If the file cannot be read any more, it returns those that it contained
// before. For a nil s it returns nil.
func (s *Secrets) Current() [][]byte {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == "" {
		return s.loaded
	}
	before := s.loaded
	_, err := s.load()
	switch {
	case s.log == nil:
	case err != nil && err.Error() != s.logged:
		s.logged = err.Error()
		s.log.Error("the secrets cannot be read: connections use those that were read before", "flag", s.flag, "err", err)
	case err == nil && !slices.EqualFunc(before, s.loaded, bytes.Equal):
		s.logged = ""
		s.log.Info("the secrets were replaced", "flag", s.flag, "file", s.file, "secrets", len(s.loaded))
	}
	return s.loaded
}

// First returns the secret for connections that this process makes.
func (s *Secrets) First() []byte { return s.Current()[0] }

// load reads the file if it was changed.
func (s *Secrets) load() (warning string, err error) {
	state, err := os.Stat(s.file) // before the file is read, so a later change is noticed by the next call
	if err != nil {
		return "", err
	}
	if s.state != nil && os.SameFile(state, s.state) && state.ModTime().Equal(s.state.ModTime()) && state.Size() == s.state.Size() {
		return "", nil
	}
	text, warning, err := cmdline.ReadPrivate(s.file)
	if err != nil {
		return "", err
	}
	secrets, err := parse(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.file, err)
	}
	s.loaded, s.state = secrets, state
	return warning, nil
}

// parse returns the secrets in a text. Its errors contain no secret.
func parse(text []byte) (secrets [][]byte, err error) {
	const create = "head -c 32 /dev/urandom | base64 makes one"
	for line := range bytes.Lines(text) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			secrets = append(secrets, line)
		}
	}
	switch {
	case len(secrets) == 0:
		return nil, fmt.Errorf("there is no secret: %s", create)
	case len(secrets) > maxSecrets:
		return nil, fmt.Errorf("there are %d secrets, each on a line of its own: at most two are accepted, while one replaces the other", len(secrets))
	}
	for _, secret := range secrets {
		if len(secret) < minSize {
			return nil, fmt.Errorf("a secret has %d bytes, and must have at least %d: %s", len(secret), minSize, create)
		}
	}
	return secrets, nil
}
