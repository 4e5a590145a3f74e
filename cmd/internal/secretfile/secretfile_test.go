package secretfile

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func texts(secrets [][]byte) string { return string(bytes.Join(secrets, []byte(" "))) }

func TestRead(t *testing.T) {
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
		fromFile, _, err := Read("--secret-file", file, "", nil)
		if err != nil {
			require.ErrorContains(t, err, want, "%q", text)
			require.ErrorContains(t, err, "--secret-file: "+file)
			require.NotContains(t, err.Error(), first[1:])
			continue
		}
		require.Equal(t, want, texts(fromFile.Current()))
		require.Equal(t, first, string(fromFile.First()))
		direct, _, err := Read("--secret", "", text, nil)
		require.NoError(t, err)
		require.Equal(t, want, texts(direct.Current()))
	}
	none, _, err := Read("--secret-file", "", "", nil)
	require.NoError(t, err)
	require.Nil(t, none.Current())
	_, _, err = Read("--secret-file", filepath.Join(t.TempDir(), "none"), "", nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestCurrent fails if a replaced file is not read, or if a file that cannot be read has any other effect
// than one message.
func TestCurrent(t *testing.T) {
	first, second := strings.Repeat("a", 16), strings.Repeat("b", 20)
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	replace := func(text string) {
		require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	replace(first)
	var log bytes.Buffer
	s, _, err := Read("--secret-file", file, "", slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	replace(first + "\n" + second)
	require.Equal(t, first+" "+second, texts(s.Current()))
	require.Contains(t, log.String(), "the secrets were replaced")
	require.Contains(t, log.String(), "secrets=2")
	log.Reset()
	replace("short")
	for range 3 {
		require.Equal(t, first+" "+second, texts(s.Current()))
	}
	require.Equal(t, 1, strings.Count(log.String(), "5 bytes"))
	require.NoError(t, os.Remove(file))
	require.Equal(t, first, string(s.First()))
	require.Contains(t, log.String(), "no such file")
	replace(second)
	require.Equal(t, second, texts(s.Current()))
	require.NotContains(t, log.String(), second)
}
