package cmdline

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func joinSecrets(secrets [][]byte) string { return string(bytes.Join(secrets, []byte(" "))) }

// TestReadSecrets_AcceptsOneOrTwoSecrets checks that ReadSecrets accepts a file with one or two secrets, and rejects
// a file with no secret, a short secret or more than two secrets, without printing a secret.
func TestReadSecrets_AcceptsOneOrTwoSecrets(t *testing.T) {
	first, second := strings.Repeat("a", 16), strings.Repeat("b", 20)
	for text, want := range map[string]string{
		first:                         first,
		first + "\r\n\n":              first,
		first + "\n" + second + "\n":  first + " " + second,
		"":                            "there is no secret",
		"\n":                          "there is no secret",
		first[1:]:                     "15 bytes",
		first + "\nshort\n":           "5 bytes",
		strings.Repeat(first+"\n", 3): "3 secrets",
	} {
		file := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		fromFile, _, err := ReadSecrets(SecretFile{"--secret-file", file}, "", nil)
		if err != nil {
			require.ErrorContains(t, err, want, "%q", text)
			require.ErrorContains(t, err, "--secret-file: "+file)
			require.NotContains(t, err.Error(), first[1:])
			continue
		}
		require.Equal(t, want, joinSecrets(fromFile.Current()))
		require.Equal(t, first, string(fromFile.First()))
		direct, _, err := ReadSecrets(SecretFile{Flag: "--secret"}, text, nil)
		require.NoError(t, err)
		require.Equal(t, want, joinSecrets(direct.Current()))
	}
	none, _, err := ReadSecrets(SecretFile{Flag: "--secret-file"}, "", nil)
	require.NoError(t, err)
	require.Nil(t, none.Current())
	_, _, err = ReadSecrets(SecretFile{"--secret-file", filepath.Join(t.TempDir(), "none")}, "", nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// replaceSecret replaces a file by a new file with the given text, as operators do.
func replaceSecret(t *testing.T, file, text string) {
	require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

// TestSecrets_ReplacedFileIsRead checks that Secrets reads its file again after the file was replaced, and keeps the
// former secrets while the file is invalid or missing.
func TestSecrets_ReplacedFileIsRead(t *testing.T) {
	first, second := strings.Repeat("a", 16), strings.Repeat("b", 20)
	file := filepath.Join(t.TempDir(), "secret")
	replaceSecret(t, file, first)
	var log bytes.Buffer
	s, _, err := ReadSecrets(SecretFile{"--secret-file", file}, "", slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	replaceSecret(t, file, first+"\n"+second)
	require.Equal(t, first+" "+second, joinSecrets(s.Current()))
	require.Contains(t, log.String(), "the secrets were replaced")
	require.Contains(t, log.String(), "secrets=2")
	log.Reset()
	replaceSecret(t, file, "short")
	require.Equal(t, first+" "+second, joinSecrets(s.Current()))
	require.NoError(t, os.Remove(file))
	require.Equal(t, first, string(s.First()))
	replaceSecret(t, file, first+"\n"+second+"\n")
	require.Equal(t, first+" "+second, joinSecrets(s.Current()))
	require.Empty(t, log.String())
	replaceSecret(t, file, second)
	require.Equal(t, second, joinSecrets(s.Current()))
	require.Equal(t, 1, strings.Count(log.String(), "the secrets were replaced"))
	require.NotContains(t, log.String(), second)
}

// TestRoles_NeedDifferentSecrets checks that peers and clients may not have the same secret, neither at the start nor
// after one of the files was replaced, and that the former secrets remain in use until the files are correct.
func TestRoles_NeedDifferentSecrets(t *testing.T) {
	first, second, third := strings.Repeat("a", 16), strings.Repeat("b", 16), strings.Repeat("c", 16)
	dir := t.TempDir()
	peers, clients := filepath.Join(dir, "peers"), filepath.Join(dir, "clients")
	replaceSecret(t, peers, first)
	replaceSecret(t, clients, second)
	read := func(flag, file string) *Secrets {
		s, _, err := ReadSecrets(SecretFile{flag, file}, "", nil)
		require.NoError(t, err)
		return s
	}
	p, c := read("--secret-file", peers), read("--client-secret-file", clients)
	_, err := NewRoles(p, p, nil)
	require.ErrorContains(t, err, "--secret-file, --secret-file: peers and clients have the same secret")
	var log bytes.Buffer
	r, err := NewRoles(p, c, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	current := func() string {
		a, b := r.Current()
		return joinSecrets(a) + ", " + joinSecrets(b)
	}
	require.Equal(t, first+", "+second, current())
	replaceSecret(t, peers, first+"\n"+second)
	require.Equal(t, first+", "+second, current())
	require.Equal(t, first+", "+second, current())
	require.Equal(t, 1, strings.Count(log.String(), "the secrets before the replacement are still used"))
	require.NotContains(t, log.String(), second)
	replaceSecret(t, clients, third)
	require.Equal(t, first+" "+second+", "+third, current())

	none, err := NewRoles(nil, nil, nil)
	require.NoError(t, err)
	a, b := none.Current()
	require.Empty(t, a)
	require.Empty(t, b)
}

// TestMonitor_WarnsOfUnreadableSecrets checks that the monitor logs once a day that a file of secrets cannot be read
// or that other users can read it.
func TestMonitor_WarnsOfUnreadableSecrets(t *testing.T) {
	first := strings.Repeat("a", 16)
	dir := t.TempDir()
	peers, clients := filepath.Join(dir, "peers"), filepath.Join(dir, "clients")
	replaceSecret(t, peers, first)
	replaceSecret(t, clients, first)
	var log bytes.Buffer
	m := Certificates{}.newMonitor(slog.New(slog.NewTextHandler(&log, nil)),
		SecretFile{"--secret-file", peers}, SecretFile{"--client-secret-file", clients}, SecretFile{Flag: "--unset"})
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	check := func(times int) string {
		log.Reset()
		for range times {
			m.check(now)
			now = now.Add(time.Minute)
		}
		return log.String()
	}
	require.Empty(t, check(3))
	replaceSecret(t, peers, "short")
	require.NoError(t, os.Remove(clients))
	require.Empty(t, check(1)) // no message yet, because the files may be replaced at this moment
	text := check(3)
	require.Equal(t, 2, strings.Count(text, "the secrets cannot be read"), text)
	require.Contains(t, text, "--secret-file: "+peers+": a secret has 5 bytes")
	require.Contains(t, text, "--client-secret-file: stat "+clients)
	now = now.Add(24 * time.Hour)
	require.Equal(t, 2, strings.Count(check(3), "the secrets cannot be read"))
	replaceSecret(t, peers, first)
	replaceSecret(t, clients, first)
	require.Empty(t, check(3))
	require.NoError(t, os.Chmod(peers, 0o644))
	text = check(3)
	require.Equal(t, 1, strings.Count(text, "--secret-file: the secrets are not private"), text)
	require.Contains(t, text, "has mode 0644")
}
