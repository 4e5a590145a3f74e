//go:build unix

package cmdline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// testSettings are settings of each type.
type testSettings struct {
	name, secret, secretFile string
	tries                    int
	wait                     time.Duration
	hosts, program           []string
	plain                    bool
	flags                    *pflag.FlagSet
}

var configuration = Settings{
	Prefix: "TEST_", Earlier: map[string]string{"older-name": "name"}, Variables: map[string][]string{"name": {"TEST_OTHER"}},
}

func newTestSettings() *testSettings {
	s := &testSettings{flags: pflag.NewFlagSet("", pflag.ContinueOnError)}
	s.flags.String(FlagConfig, "", "")
	s.flags.StringVar(&s.name, "name", "default", "")
	s.flags.StringVar(&s.secret, "secret", "", "")
	s.flags.StringVar(&s.secretFile, "secret-file", "", "")
	s.flags.IntVar(&s.tries, "tries", 1, "")
	s.flags.DurationVar(&s.wait, "wait", time.Second, "")
	s.flags.StringSliceVar(&s.hosts, "hosts", nil, "")
	s.flags.StringArrayVar(&s.program, "program", nil, "")
	s.flags.BoolVar(&s.plain, "plain", false, "")
	s.flags.SetNormalizeFunc(configuration.Normalize)
	return s
}

// read parses a command line, and reads the other sources. If file is not empty, it is the text of the
// configuration file.
func (s *testSettings) read(t testing.TB, file string, args ...string) (warning string, err error) {
	if file != "" {
		name := filepath.Join(t.TempDir(), "test.yaml")
		require.NoError(t, os.WriteFile(name, []byte(file), 0o600))
		require.NoError(t, os.Chmod(name, 0o644))
		args = append(args, "--"+FlagConfig, name)
	}
	require.NoError(t, s.flags.Parse(args))
	return configuration.Read(s.flags, s.flags, func(flag, _ string) bool { return flag == "secret" })
}

// TestSettings_FollowOrderOfPrecedence checks that the command line has precedence over environment variables, these
// over the configuration file, and the file over the defaults.
func TestSettings_FollowOrderOfPrecedence(t *testing.T) {
	const file = "older-name: file\ntries: 7\nwait: 3s\nhosts: [a, 'b,c']\nprogram:\n- echo\n- 3\nplain: true\nsecret: file\n"
	s := newTestSettings()
	warning, err := s.read(t, file)
	require.NoError(t, err)
	require.Contains(t, warning, "mode 0644")
	require.Equal(t, "file", s.name)
	require.Equal(t, 7, s.tries)
	require.Equal(t, 3*time.Second, s.wait)
	require.Equal(t, []string{"a", "b,c"}, s.hosts)
	require.Equal(t, []string{"echo", "3"}, s.program)
	require.True(t, s.plain)

	t.Setenv("TEST_OLDER_NAME", "older variable")
	t.Setenv("TEST_TRIES", "")
	t.Setenv("TEST_HOSTS", "d,e")
	s = newTestSettings()
	_, err = s.read(t, file, "--wait", "4s")
	require.NoError(t, err)
	for flag, want := range map[string]string{"name": "TEST_OLDER_NAME", "wait": "command line", "hosts": "TEST_HOSTS", "secret-file": "default"} {
		require.Equal(t, want, Source(s.flags.Lookup(flag)))
	}
	require.Regexp(t, `/test.yaml:2$`, Source(s.flags.Lookup("tries")))
	require.Equal(t, "older variable", s.name)
	require.Equal(t, 7, s.tries)
	require.Equal(t, 4*time.Second, s.wait)
	require.Equal(t, []string{"d", "e"}, s.hosts)
	t.Setenv("TEST_OTHER", "other variable")
	s = newTestSettings()
	_, err = s.read(t, "")
	require.NoError(t, err)
	require.Equal(t, "other variable", s.name)
	t.Setenv("TEST_NAME", "variable")
	_, err = s.read(t, "", "--name", "flag")
	require.NoError(t, err)
	require.Equal(t, "flag", s.name)

	for _, empty := range []string{" ", "# nothing\n", "---\n", "{}\n"} {
		s = newTestSettings()
		warning, err = s.read(t, empty)
		require.NoError(t, err, "%q", empty)
		require.Empty(t, warning)
		require.Equal(t, "variable", s.name)
	}
}

// TestSettings_UseEitherSecretOrItsFile checks that, if one source sets a secret and another source the name of its
// file, only the setting of the source with precedence is used, and that one source may not set both.
func TestSettings_UseEitherSecretOrItsFile(t *testing.T) {
	for _, test := range []struct{ flag, variable, file, want string }{
		{"--secret=flag", "TEST_SECRET_FILE", "secret-file: x", "flag,"},
		{"--secret-file=flag", "TEST_SECRET", "secret: x", ",flag"},
		{"", "TEST_SECRET", "secret-file: x", "variable,"},
		{"", "TEST_SECRET_FILE", "secret: x", ",variable"},
		{"", "", "secret: ''\nsecret-file: x", ",x"},
		{"", "", "secret: x\nsecret-file: y", "--secret-file (FILE:2) and --secret (FILE:1): set only one of them"},
		{"--secret=x --secret-file=y", "", " ", "--secret-file (command line) and --secret (command line): set only one"},
	} {
		t.Setenv("TEST_SECRET", "")
		t.Setenv("TEST_SECRET_FILE", "")
		if test.variable != "" {
			t.Setenv(test.variable, "variable")
		}
		s := newTestSettings()
		for range 2 { // the second call changes nothing
			_, err := s.read(t, test.file, strings.Fields(test.flag)...)
			if strings.Contains(test.want, "only") {
				require.ErrorContains(t, err, strings.ReplaceAll(test.want, "FILE", s.flags.Lookup(FlagConfig).Value.String()))
				break
			}
			require.NoError(t, err)
			require.Equal(t, test.want, s.secret+","+s.secretFile)
		}
	}
}

// TestSettings_NameLineButNotValueOfInvalidKey checks that the error for an invalid configuration file contains the
// line and the key, but no value, which could be a credential.
func TestSettings_NameLineButNotValueOfInvalidKey(t *testing.T) {
	for text, want := range map[string]string{
		"tries: 1\n\ntires: 2":     `:3: unknown key "tires": the nearest is "tries"`,
		"config: x":                `:1: unknown key "config"`,
		"<<: {tries: 1}":           `:1: unknown key "<<"`,
		"wait: hunter2":            `:1: "wait" is not a duration such as 10s`,
		"wait: 5":                  `:1: "wait" is not a duration`,
		"tries: hunter2":           `:1: "tries" is not a whole number such as 3`,
		"plain: hunter2":           `:1: "plain" is neither true nor false`,
		"tries: 1\ntries: 2":       `:2: "tries" is set in line 1 already: remove one`,
		"name: a\nolder-name: b":   `:2: "older-name" is set in line 1 already`,
		"program: hunter2 --daily": `:1: "program" is not a list: write`,
		"program: [[hunter2]]":     `:1: an element of "program": use one value`,
		"hosts:\n- a\n- ":          `:3: an element of "hosts": use one value`,
		"hosts: {hunter2: 1}":      `:1: "hosts" is a mapping: use one value, or a list`,
		"name: [hunter2]":          `:1: "name" is a list or a mapping: use one value`,
		"name: {hunter2: 1}":       `:1: "name" is a list or a mapping`,
		"name:":                    `:1: "name" has no value: set it, or remove the key`,
		"name: a\n---\nname: b":    ":2: a second document: expected exactly one YAML document",
		"- name":                   ":1: not of the form key: value",
		"hunter":                   ":1: not of the form key: value",
		"tries: 1\nname: \"a":      ":2: found unexpected end of stream: correct the YAML syntax",
		"name: *x":                 "unknown anchor 'x' referenced: correct the YAML syntax",
		"x: 1\ny: 2":               `:2: unknown key "y"`,
	} {
		s := newTestSettings()
		_, err := s.read(t, text)
		require.ErrorContains(t, err, want, "%q", text)
		require.NotContains(t, err.Error(), "hunter2")
		for line := range strings.Lines(err.Error()) {
			require.Contains(t, line, "test.yaml:", "%q", text)
		}
	}
	t.Setenv("TEST_WAIT", "soon")
	_, err := newTestSettings().read(t, "tries: x")
	require.ErrorContains(t, err, `TEST_WAIT: "soon" is not a duration such as 10s`)
	require.ErrorContains(t, err, `"tries" is not a whole number`, "all errors are reported together")
}

// FuzzSettings reads arbitrary configuration files, and requires that the elements of an accepted list are not much
// longer than the file, so that YAML aliases cannot multiply them.
func FuzzSettings(f *testing.F) {
	f.Add("name: x\nprogram: [report, --serve]\nwait:\n")
	f.Add("hosts: &x [1, 2]\nprogram: *x\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		s := newTestSettings()
		if _, err := s.read(t, text); err == nil {
			require.LessOrEqual(t, len(strings.Join(s.hosts, "")), 2*len(text))
		}
	})
}
