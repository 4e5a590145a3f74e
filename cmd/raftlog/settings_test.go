//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// writeFile writes a private file, and returns its name.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "raftlog.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// loadSettings returns the settings of a command line.
func loadSettings(t *testing.T, args ...string) (*settings, error) {
	t.Helper()
	s, cmd := newSettings(), &cobra.Command{}
	addFlagSet(cmd, s.flags)
	require.NoError(t, cmd.ParseFlags(args))
	_, err := s.load()
	return s, err
}

// TestDefaults_DescribeEveryKey checks that the file that the command defaults prints contains each key with
// its description and its default.
func TestDefaults_DescribeEveryKey(t *testing.T) {
	s, err := loadSettings(t, "--config", writeFile(t, defaultsFile()))
	require.NoError(t, err)
	unset := newSettings()
	s.flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" {
			require.Equal(t, unset.flags.Lookup(f.Name).Value.String(), f.Value.String(), f.Name)
			require.Regexp(t, `(?m)^# .*\n`+f.Name+`: `, defaultsFile())
		}
	})
}

// TestSettings_UseEveryKey checks that no key of the configuration file is ignored, and that an invalid file is
// rejected.
func TestSettings_UseEveryKey(t *testing.T) {
	s, err := loadSettings(t, "--config", writeFile(t, "window: 1h30m\npeers: [ 'tcp://h:1/a', {addr: 'g:2', id: b} ]\ncluster: c\ndir: /x/{id}\npeer-id: b\ncompact-file: y/{id}/z\nmax-data: 5\nlog-level: warn\n"))
	require.NoError(t, err)
	require.NoError(t, s.completePeer())
	require.Equal(t, 90*time.Minute, s.window)
	require.Equal(t, cmdline.PeerList{{ID: "a", Addr: "h:1"}, {ID: "b", Addr: "g:2"}}, s.Peers)
	require.Equal(t, "g:2", s.addr)
	require.Equal(t, "/x/b", s.Dir)
	require.Equal(t, "y/b/z", s.compactFile)
	require.Equal(t, 5, s.maxData)
	require.Equal(t, "warn", s.logLevel)

	t.Setenv("RAFTLOG_PEERS", "h:1/a,g:2/b")
	t.Setenv("RAFTLOG_WINDOW", "2h")
	s, err = loadSettings(t, "--config", writeFile(t, "window: 1h30m\npeers: []\n"))
	require.NoError(t, err)
	require.Equal(t, 2*time.Hour, s.window)
	require.Equal(t, []api.Peer{{ID: "a", Addr: "h:1"}, {ID: "b", Addr: "g:2"}}, []api.Peer(s.Peers))

	t.Setenv("RAFTLOG_PEERS", "")
	for text, want := range map[string]string{
		"cluster: a\nwindoww: 1h\nmax-data: x":    `raftlog.yaml:2: unknown key "windoww": the nearest is "window"` + "\n",
		"peers: a":                                `:1: "peers": peer "a": must have the form tcp://host:port/id`,
		"peers:\n- {id: a, addr: 'h:1', port: 2}": `:2: an element of "peers": a peer has the keys id and addr`,
		"insecure: " + secret:                     `:1: "insecure" is neither true nor false`,
	} {
		_, err := loadSettings(t, "--config", writeFile(t, text))
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), secret)
		require.Equal(t, cmdline.Usage, exitCode(err))
	}
}

// TestSettings_IgnoreAddressOfOtherPeer checks that a peer whose ID is a flag ignores the address in the shared
// file if the file lists another address for this ID.
func TestSettings_IgnoreAddressOfOtherPeer(t *testing.T) {
	file := writeFile(t, "cluster: c\ndir: d\npeer-id: a\naddr: 'other:1'\npeers: ['h:1/a', 'h:2/b']\n")
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "other:1"},
		{[]string{"--peer-id", "b"}, "h:2"},
		{[]string{"--peer-id", "b", "--addr", "x:1"}, "x:1"},
		{[]string{"--peer-id", "not-listed"}, "other:1"},
	} {
		s, err := loadSettings(t, append(test.args, "-c", file)...)
		require.NoError(t, err)
		require.NoError(t, s.completePeer())
		require.Equal(t, test.want, s.addr, test.args)
	}
}
