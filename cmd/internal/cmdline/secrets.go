package cmdline

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
)

const (
	// minSize is the minimum length of a secret in bytes. A process that can reach the port of a peer could guess a
	// shorter secret.
	minSize = 16
	// maxSecrets is the maximum number of secrets in a file: during a change, the file contains the old and the new
	// secret.
	maxSecrets = 2
)

// Secrets contains the secrets of one role, at most two. Connections that this process makes use the first secret,
// and connections that this process accepts may use any of the secrets. The methods can be called concurrently.
type Secrets struct{ replaceable[[][]byte] }

// SecretFile is a file that contains secrets, each on a line of its own.
type SecretFile struct {
	Flag string // Flag is the name of the flag with its dashes.
	Name string // Name is the name of the file. It is empty if the flag is not set.
}

func (f SecretFile) isSet() bool { return f.Name != "" }

func (f SecretFile) secrets() *Secrets {
	s := new(Secrets)
	s.flags, s.files = f.Flag, []string{f.Name}
	s.read = func() (*[][]byte, string, error) {
		text, warning, err := ReadPrivate(f.Name)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", f.Flag, err)
		}
		secrets, err := parseSecrets(text)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %s: %w", f.Flag, f.Name, err)
		}
		return &secrets, warning, nil
	}
	return s
}

// ReadSecrets reads the secrets from the file f, or from value if f has no name. It returns nil if f has no name and
// value is empty. Errors begin with the name of the flag. The warning is not empty if all users can read the file.
// log receives a message each time an operator has replaced the secrets, and may be nil. [Certificates.Monitor] logs
// later errors, for commands that call it.
func ReadSecrets(f SecretFile, value string, log *slog.Logger) (s *Secrets, warning string, err error) {
	switch {
	case !f.isSet() && value == "":
		return nil, "", nil
	case !f.isSet():
		secrets, err := parseSecrets([]byte(value))
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", f.Flag, err)
		}
		s = new(Secrets)
		s.flags, s.loaded = f.Flag, &secrets
		return s, "", nil
	}
	s = f.secrets()
	if log != nil {
		s.replaced = func(before, after *[][]byte) {
			if !slices.EqualFunc(*before, *after, bytes.Equal) {
				log.Info("the secrets were replaced", "flag", f.Flag, "file", f.Name, "secrets", len(*after))
			}
		}
	}
	if _, err = s.load(); err != nil {
		return nil, "", err
	}
	return s, s.warning, nil
}

// Current returns the secrets. If the file cannot be read any more, Current returns the secrets that the file
// contained before. For a nil s it returns nil.
func (s *Secrets) Current() [][]byte {
	if s == nil {
		return nil
	}
	secrets, _ := s.load() // ignore the error, which Certificates.Monitor logs
	return *secrets
}

// First returns the secret for connections that this process makes.
func (s *Secrets) First() []byte { return s.Current()[0] }

// parseSecrets returns the secrets in a text. Its errors contain no secret.
func parseSecrets(text []byte) (secrets [][]byte, err error) {
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
